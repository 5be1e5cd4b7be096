"""Input designs: the signals u that excite a model, fixed or drawn anew for every simulation.

Samples count from k = 1, as in the paper: row 0 of a drawn signal is u_1, and k dt in a formula
starts at dt. `omega` is in radians per unit of time, `f0`, `f1` and `band` in cycles per unit of
time (Hz where dt is in seconds), `phase` in radians, `hold` in samples. A frequency above Nyquist
is refused.

Where a number may vary, a pair `(low, high)` makes it uniformly random, drawn once per signal:
`Cosine(omega=(0.5, 2.0))` is a new cosine for every key, `Cosine()` always the same one.
"""

from greybayes.inputs.design import Design as Design
from greybayes.inputs.design import Signal as Signal
from greybayes.inputs.design import Stack as Stack
from greybayes.inputs.fields import Hold as Hold
from greybayes.inputs.fields import Range as Range
from greybayes.inputs.levels import PRBS as PRBS
from greybayes.inputs.levels import Steps as Steps
from greybayes.inputs.levels import WhiteNoise as WhiteNoise
from greybayes.inputs.sines import Chirp as Chirp
from greybayes.inputs.sines import Cosine as Cosine
from greybayes.inputs.sines import Multisine as Multisine
from greybayes.inputs.sines import crest_factor as crest_factor
from greybayes.inputs.text import DESIGNS as DESIGNS
from greybayes.inputs.text import from_dict as from_dict
from greybayes.inputs.text import parse as parse
