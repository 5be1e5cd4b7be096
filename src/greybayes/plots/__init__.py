"""Figures: functions from results to matplotlib figures. Nothing is shown, and no state is kept.

Figures are made with matplotlib's object interface, never with pyplot, so that they work in a
server, in a test and in a notebook alike. Matplotlib is loaded when a figure is first asked for.
"""

from greybayes.plots.base import FORMATS as FORMATS
from greybayes.plots.base import figure_format as figure_format
from greybayes.plots.base import save_figure as save_figure
from greybayes.plots.calibration import plot_calibration as plot_calibration
from greybayes.plots.estimates import plot_estimates as plot_estimates
from greybayes.plots.output import plot_output as plot_output
from greybayes.plots.posterior import plot_pairs as plot_pairs
from greybayes.plots.posterior import plot_posterior as plot_posterior
from greybayes.plots.records import MAX_OVERLAID as MAX_OVERLAID
from greybayes.plots.records import plot_records as plot_records
from greybayes.plots.residuals import plot_residuals as plot_residuals
