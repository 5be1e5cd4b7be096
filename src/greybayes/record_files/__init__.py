"""The files that records live in: addresses, CSV, MAT and Parquet, read and written as bytes.

Nothing here makes a `Record`. A reader turns bytes into named columns (`table`); `choice` says
which of them are outputs, inputs and times, and `columns` makes them the fields of records. Every
file is input from outside, so whatever is wrong with one ends as a `RecordError` with one sentence,
and nothing in a file is ever executed.
"""

from greybayes.record_files.address import format_of as format_of
from greybayes.record_files.address import parse_address as parse_address
from greybayes.record_files.checks import check_order as check_order
from greybayes.record_files.disk import write_atomically as write_atomically
