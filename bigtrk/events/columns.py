"""The columns of TrackML tables, and the names other producers give them."""

from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False)
class TableSpec:
    """The columns that one table must and may hold.

    ids: required, int64, never blank. finite: required, float64, never blank, NaN or infinite.
    floats: required, float64, blank becomes NaN. optional_ids and optional_floats likewise.
    aliases: other producers' names. packed: read in place of volume_id, layer_id and module_id
    where these are absent.
    """

    stems: tuple[str, ...]  # "hits" in event000001000-hits.csv
    ids: tuple[str, ...]
    finite: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()
    optional_ids: tuple[str, ...] = ()
    optional_floats: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)
    packed: str | None = None

    @property
    def required(self) -> tuple[str, ...]:
        return self.ids + self.finite + self.floats

    @property
    def never_blank(self) -> tuple[str, ...]:
        return self.ids + self.finite


MODULE_IDS = ("volume_id", "layer_id", "module_id")

HITS = TableSpec(
    stems=("hits",),
    ids=("hit_id", *MODULE_IDS),
    finite=("x", "y", "z"),
    packed="geometry_id",
)
CELLS = TableSpec(
    stems=("cells",),
    ids=("hit_id", "ch0", "ch1"),
    finite=("value",),
    # ACTS renamed the channels: CellData of its CSV examples.
    aliases={"channel0": "ch0", "channel1": "ch1"},
)
PARTICLES = TableSpec(
    # ACTS names its generator-level particles by the second stem.
    stems=("particles", "particles_initial"),
    ids=("particle_id",),
    floats=("vx", "vy", "vz", "px", "py", "pz", "q"),
    optional_ids=("particle_type", "nhits"),
)
TRUTH = TableSpec(
    stems=("truth",),
    ids=("hit_id", "particle_id"),
    optional_floats=("tx", "ty", "tz", "tpx", "tpy", "tpz", "weight"),
)
ROTATION = tuple(f"rot_{global_axis}{local}" for global_axis in "xyz" for local in "uvw")
MODULE_SIZES = ("module_t", "module_minhu", "module_maxhu", "module_hv", "pitch_u", "pitch_v")
DETECTORS = TableSpec(
    stems=("detectors",),
    ids=MODULE_IDS,
    finite=("cx", "cy", "cz", *ROTATION, *MODULE_SIZES),
)
