"""A sampler for data sets whose epochs outlast ranks."""

import itertools
import json
import sys
import weakref
from collections.abc import Iterator, Sequence, Sized
from typing import Any

import torch

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core
from bluefog_cpp.torch._membership import membership
from bluefog_cpp.torch._runtime import current
from bluefog_cpp.torch._state import broadcast_state


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Deals the samples of a data set to the ranks, and deals anew what is left where ranks are
    lost in the middle of an epoch: all samples of an epoch are drawn by ranks that live, each of
    which draws as many as the others.

        loader = DataLoader(data, batch_size=64, sampler=bf.ElasticSampler(data))
        for epoch in range(epochs):
            loader.sampler.set_epoch(epoch)
            for batch in loader: ...

    Collective where ranks are lost: all ranks make theirs alike, in the same order. A sample counts
    as drawn when the loader has asked for it: what its workers have fetched ahead goes on to be
    trained on. A loader that has drawn all of its own asks no more: once one has, what lost ranks
    had not drawn is missed in this epoch, and a line in the log says how many these may be. Some
    samples are drawn twice where their number is no multiple of that of the ranks.
    """

    _numbers = itertools.count()

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0):
        """dataset: something with a length, at least 1. shuffle: whether each epoch has an order of
        its own. seed: of these orders, the same on all ranks. Raises InvalidArgument for others."""
        call = "ElasticSampler"
        self._count: int = checked(call, "dataset", _arguments.length, dataset)
        self._shuffles: bool = checked(call, "shuffle", _arguments.switch, shuffle)
        self._seed: int = checked(call, "seed", _arguments.at_least(0), seed)
        self.number = next(self._numbers)
        self._epoch = 0
        self._repeats = 0
        """How often the epoch had been begun before."""
        self._deals: dict[tuple[int, int], _Deal] = {}
        self._loader: weakref.ref[Any] | None = None
        """What iterates over a torch.utils.data.DataLoader, if that draws the samples."""
        self._began_at = 0
        """How many of the epoch had been drawn when it began."""
        current().samplers.add(self)

    @property
    def epoch(self) -> int:
        """The epoch that it deals: on a process that has joined (`enter`), that of the others."""
        return self._epoch

    def _trained(self, deal: "_Deal") -> int:
        """How many of this rank's samples its loader has handed out: it may have asked for more,
        and have workers fetch them ahead. All, where the pass is over."""
        if self._loader is None or deal.drawn == 0:
            return deal.drawn
        loader = self._loader()
        if loader is None:
            return len(deal.own)
        asked = deal.drawn - self._began_at
        # A batch sampler of the program's own may not tell; batches are alike then.
        each = getattr(loader._index_sampler, "batch_size", None)
        batches = int(getattr(loader, "_send_idx", loader._num_yielded))
        share = each if each is not None else asked / max(batches, 1)
        return min(deal.drawn, self._began_at + round(int(loader._num_yielded) * share))

    def _is_under_way(self, deal: "_Deal") -> bool:
        """Whether the loop that draws it has not ended: behind its last batch, too."""
        if self._loader is None:
            return deal.drawn < len(deal.own)
        return self._loader() is not None

    def described(self) -> str:
        """Its data and order, in words."""
        order = f"shuffled by seed {self._seed}" if self._shuffles else "in their order"
        return f"an ElasticSampler of {self._count} samples, {order}"

    def set_epoch(self, epoch: int) -> None:
        """The epoch that comes, whose order it has; those before it are over. Raises
        InvalidArgument for anything but a number of 0 or more."""
        epoch = checked("ElasticSampler.set_epoch", "epoch", _arguments.at_least(0), epoch)
        if epoch != self._epoch:
            self._epoch, self._repeats = epoch, 0
        self._forget_old()

    def __len__(self) -> int:
        """The samples that this rank draws in the epoch."""
        return len(self._deal().own)

    def __iter__(self) -> Iterator[int]:
        if self._deal().drawn > 0 and not self._deal().is_to_be_continued:
            self._repeats += 1
            self._forget_old()
        deal = self._deal()
        deal.is_to_be_continued = False
        self._loader, self._began_at = _loader_that_draws(), deal.drawn
        own = deal.own.tolist()
        while deal.drawn < len(own):
            index = own[deal.drawn]
            deal.drawn += 1
            yield index
            if self._deals.get(deal.key, deal) is not deal:  # ranks have been lost
                deal = self._deals[deal.key]
                own = deal.own.tolist()
        deal.has_ended = True

    def _forget_old(self) -> None:
        now = self._epoch, self._repeats
        self._deals = {key: deal for key, deal in self._deals.items() if key >= now}

    def _deal(self) -> "_Deal":
        key = self._epoch, self._repeats
        if key not in self._deals:
            self._deals[key] = self._first_deal(key, membership().ranks)
        return self._deals[key]

    def _first_deal(self, key: tuple[int, int], members: list[int]) -> "_Deal":
        return _Deal(key, members, core.first_shares(
            self._count, self._shuffles, self._seed, key[0], len(members)))

    def deal_anew(self, is_new: Sequence[bool]) -> None:
        """Collective over the ranks that are left: deals what no one of them has drawn of the epoch
        that the furthest is in. is_new: of each rank, whether it has not been there before: it gets
        as many of it as the others have trained on before it."""
        runtime = current()
        states = _gathered({"now": (self._epoch, self._repeats),
                            "deals": [(deal.key, self._trained(deal), self._is_under_way(deal),
                                       deal.known()) for deal in self._deals.values()]})
        key: tuple[int, int] = max(tuple(each["now"]) for new, each in
                                   zip(is_new, states, strict=True) if not new)
        parts: list[tuple[int, bool, list[Any]]] = [
            next(((trained, goes_on, known) for of, trained, goes_on, known in each["deals"]
                  if tuple(of) == key), (0, False, [])) for each in states]
        common = core.common_deal([
            (number, new, known) for number, new, (_, _, known)
            in zip(membership().ranks, is_new, parts, strict=True)])
        has_part = common.has_part[runtime.rank] if common else not is_new[runtime.rank]
        newest = None if is_new[runtime.rank] else self._deals.get(key)
        if not has_part:
            self._epoch, self._repeats = key
            self._deals.clear()
        if common:
            trained = min(trained for (trained, *_), has in zip(parts, common.has_part, strict=True)
                          if has)
            self._deals[key] = self._deal_on(key, common, newest, trained)
            waits = newest.is_to_be_continued if newest is not None else not has_part
            self._deals[key].is_to_be_continued = waits and any(
                goes_on for (_, goes_on, _), has in zip(parts, common.has_part, strict=True) if has)

    def _deal_on(self, key: tuple[int, int], common: "core.CommonDeal", newest: "_Deal | None",
                 trained: int) -> "_Deal":
        """Collective. newest: this rank's, of the epoch. trained: how many of its own each rank has
        trained on."""
        left = membership().ranks
        before = newest
        while before is not None and not before.is_one(common):
            before = before.before  # ranks were lost while it was dealt anew
        if before is None and common.has_part[current().rank]:
            before = self._first_deal(key, common.members)
        dealt = self._dealt(common, before)
        later: list[list[int]] = [[]] * len(left)
        if not common.is_newest:
            begins = before.drawn if before else newest.begins if newest else 0
            later = _gathered(newest.own[begins:newest.drawn].tolist() if newest else [])
        shares, drawn = core.draws_of(
            common, left, dealt, [torch.tensor(each, dtype=torch.int64) for each in later], trained)
        if common.has_ended:
            self._say_what_is_missed(key, shares)
        else:
            shares = core.later_shares(
                self._count, self._shuffles, self._seed, key[0], shares, drawn)
        if before is not None:
            before.before = None  # everybody has this one
        now = _Deal(key, left, shares, drawn[current().rank], before, common.generation + 1)
        now.has_ended = newest is not None and newest.has_ended
        return now

    def _dealt(self, common: "core.CommonDeal", deal: "_Deal | None") -> list[torch.Tensor]:
        """The shares of the deal's members, collective where a rank lacks it."""
        shares = deal.shares if deal is not None else []
        if all(common.has_part):
            return shares
        received: list[torch.Tensor] = broadcast_state(
            "shrink", lambda: shares, lambda: ["ElasticSampler"], common.giver)
        return received

    def _say_what_is_missed(self, key: tuple[int, int], shares: list[torch.Tensor]) -> None:
        all_shares = torch.cat(shares)
        missed = self._count - len(all_shares[all_shares >= 0].unique())
        if missed and current().rank == 0:
            current().context.log_warning(
                f"ElasticSampler: up to {missed} samples of epoch {key[0]} are missed: those "
                "of ranks that were lost when others had drawn all of their own")


def _gathered(own: Any) -> list[Any]:
    """Collective: what each rank has."""
    parts = core.gather_bytes(current().context, "shrink", json.dumps(own).encode())
    return [json.loads(part) for part in parts]


def _loader_that_draws() -> "weakref.ref[Any] | None":
    """The loader's iterator among this generator's callers: torch hands it to nobody."""
    frame = sys._getframe(2)
    for _ in range(6):
        caller = frame.f_locals.get("self")
        if isinstance(caller, torch.utils.data.dataloader._BaseDataLoaderIter):
            return weakref.ref(caller)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


class _Deal:
    """The samples of an epoch, by rank."""

    def __init__(self, key: tuple[int, int], members: list[int], shares: list[torch.Tensor],
                 drawn: int = 0, before: "_Deal | None" = None, generation: int = 0):
        self.key = key
        """The epoch, and how often it had been begun before."""
        self.members = members
        """The numbers in the launch of the ranks for which it is."""
        self.shares = shares
        self.begins = self.drawn = drawn
        """How many of its own this rank had drawn at first, and has drawn."""
        self.has_ended = False
        """Whether whoever draws knows that there are no more."""
        self.before = before
        self.generation = generation
        """0: the first of the epoch; else one more than that of the deal before."""
        self.is_to_be_continued = False
        """Whether others have begun it, and this rank has not."""

    def is_one(self, common: "core.CommonDeal") -> bool:
        return (self.generation, self.members) == (common.generation, common.members)

    def known(self) -> list[tuple[int, list[int], int, bool]]:
        """It and those before it, as `common_deal` takes them."""
        before = self.before.known() if self.before is not None else []
        return [(self.generation, self.members, self.drawn, self.has_ended), *before]

    @property
    def own(self) -> torch.Tensor:
        return self.shares[self.members.index(current().context.membership[1][current().rank])]
