"""One plan for a wish, with what it will give and what it asks of a device."""

from dataclasses import dataclass

from changeling_protocol import Node, ReleasePlan, Survey
from changeling_protocol.sealing import HEAD_BYTES, SEAL_BYTES
from changeling_protocol.upload import closings, upload_bytes

from .prediction import Prediction, predict
from .wish import Wish


@dataclass(frozen=True, slots=True)
class Option:
    """name: of the kind of plan; detail: its parameters in a few words. survey: an unsigned one with this plan."""

    name: str
    detail: str
    survey: Survey
    prediction: Prediction

    @classmethod
    def of(cls, wish: Wish, name: str, plan: ReleasePlan, detail: str = "") -> "Option":
        survey = wish.survey(plan)
        return cls(name, detail, survey, predict(survey, wish.devices, retrospective=wish.retrospective))

    @property
    def plan(self) -> ReleasePlan:
        return self.survey.plan

    @property
    def title(self) -> str:
        return f"{self.name}, {self.detail}" if self.detail else self.name

    def error(self, wish: Wish) -> float:
        """What the wish's objective makes of the prediction, a standard error as a fraction."""
        return self.prediction.objective(wish.objective)

    @property
    def reports(self) -> float:
        """How many reports one device sends in all, mean over the groups."""
        groups = self.plan.groups
        sent = sum(group.share * sum(track.reports for track in group.tracks) for group in groups)
        return sent / self.plan.total_share

    @property
    def sent_bytes(self) -> int:
        """How many bytes one device uploads in all, one sealed envelope each time a node of the plan closes.

        The same for every device: an upload is padded to the group with most to say.
        """
        ends = closings(self.plan, 0, self.survey.calendar.periods)
        return sum(upload_bytes(self.plan, Node(end - 1, end)) + HEAD_BYTES + SEAL_BYTES for end in ends)

    def least_reports(self, devices: int) -> float:
        """How many reports the node with the fewest is expected to get."""
        groups, total = self.plan.groups, self.plan.total_share
        return min(
            devices * group.share / total * track.reports / track.count for group in groups for track in group.tracks
        )
