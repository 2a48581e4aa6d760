"""The settings of the false edges that a model of single edges is trained on."""

from pydantic import Field

from bigtrk.config import Settings


class NegativeSettings(Settings):
    """False edges that each step trains (model.name=mlp, in wedges or sectors): all of them, unless
    `hard` or `easy` is given.

    A pass without gradients then scores all edges of a wedge; all true edges, the hardest false
    ones and some of the others are trained. The false ones weigh alike, together as much as all:
    scores are no probabilities then, and the loss of validation, which is of all edges, is higher.
    """

    hard: float = Field(0.0, ge=0, le=1e6)
    """The hardest false edges, those with the highest scores, for each true edge [edges]."""
    easy: float = Field(0.0, ge=0, le=1e6)
    """False edges drawn at random from the others, for each true edge [edges]."""

    @property
    def are_chosen(self) -> bool:
        """Says whether only some false edges are trained."""
        return self.hard > 0 or self.easy > 0
