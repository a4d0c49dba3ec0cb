"""Foreign state dicts to our GPT and back.

`tables` says, a table a layout, what each project calls its weights; `settings`, what their configs call our fields;
`refused`, which families are known by their keys but computed otherwise; `reading` does the work.
"""

from interp_core.layouts.reading import Fact, HeadsMissing, Reading, build, read, write
from interp_core.layouts.tables import COURSE, LAYOUTS

__all__ = ["COURSE", "LAYOUTS", "Fact", "HeadsMissing", "Reading", "build", "read", "write"]
