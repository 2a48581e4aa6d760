"""The settings of the pairs of hits that an embedding is trained on."""

from pydantic import Field

from bigtrk.config import Settings


class PairSettings(Settings):
    """Pairs of hits that train an embedding (model.name=embedding), and their loss: the mean
    squared distance of true pairs + the sum of what false ones lack to the squared margin, divided
    by the number that is drawn.

    True pairs are the edges of the graph, weighted as `target` says. A hit is drawn with its
    nearest neighbours in the embedding as it is, the hard false pairs; others are random. Pairs of
    hits of one particle that no edge joins are left out.
    """

    margin: float = Field(1.0, gt=0)
    """Distance in the embedding from which a false pair costs nothing."""
    hard_hits: int = Field(4000, ge=0, lt=2**31)
    """Hits of each event, or part of one, whose neighbours are false pairs [hits]."""
    neighbours: int = Field(20, ge=1, le=1000)
    """The most neighbours of such a hit, all within the margin [hits]."""
    random_pairs: int = Field(4000, ge=0, lt=2**31)
    """Random pairs of each event, or part of one [pairs]."""

    def false_pairs(self, n_hits: int) -> int:
        """Counts the false pairs that are drawn for so many hits, before any is left out."""
        if n_hits < 2:
            return 0
        return min(self.hard_hits, n_hits) * min(self.neighbours, n_hits - 1) + self.random_pairs
