"""One plan for a wish: how accurate it will be, and what it asks of a device."""

from dataclasses import dataclass

from changeling_protocol import HEAD_BYTES, SEAL_BYTES, Node, ReleasePlan, Survey, closings, upload_bytes

from .prediction import Prediction, predict
from .wish import Wish


@dataclass(frozen=True, slots=True)
class Option:
    """A plan, how accurate it will be, and what it asks of a device.

    name: what kind of plan it is.
    detail: its parameters in a few words; may be empty.
    survey: an unsigned survey with this plan.
    prediction: how accurate its histograms will be if as many devices answer as the wish says.
    """

    name: str
    detail: str
    survey: Survey
    prediction: Prediction

    @classmethod
    def of(cls, wish: Wish, name: str, plan: ReleasePlan, detail: str = "") -> "Option":
        """The option of a plan for this wish, its accuracy predicted."""
        survey = wish.survey(plan)
        return cls(name, detail, survey, predict(survey, wish.devices, retrospective=wish.retrospective))

    @property
    def plan(self) -> ReleasePlan:
        """The release plan itself."""
        return self.survey.plan

    @property
    def title(self) -> str:
        """Name and detail, as tables show them."""
        return f"{self.name}, {self.detail}" if self.detail else self.name

    def error(self, wish: Wish) -> float:
        """The standard error that the wish wants small, mean or worst, as a fraction of the entries."""
        return self.prediction.objective(wish.objective)

    @property
    def reports(self) -> float:
        """How many reports one device sends in all, mean over the groups."""
        groups = self.plan.groups
        sent = sum(group.share * sum(track.reports for track in group.tracks) for group in groups)
        return sent / self.plan.total_share

    @property
    def sent_bytes(self) -> int:
        """How many bytes one device uploads in all, in one envelope for each time at which nodes of the plan close.

        It is the same for every device, as uploads are padded to the length of the longest group's.
        """
        ends = closings(self.plan, 0, self.survey.calendar.periods)
        return sum(upload_bytes(self.plan, Node(end - 1, end)) + HEAD_BYTES + SEAL_BYTES for end in ends)

    def least_reports(self, devices: int) -> float:
        """How many reports the node with the fewest is expected to get, if so many devices answer."""
        groups, total = self.plan.groups, self.plan.total_share
        return min(
            devices * group.share / total * track.reports / track.count for group in groups for track in group.tracks
        )
