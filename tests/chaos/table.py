"""When each event was noticed, and when training went on after it."""

import collections
import math
import statistics

Row = collections.namedtuple("Row", "event kind detected next_step full overlaps")


def detected(job, event):
    """The first word of it: bfrun's, or that of ranks that have moved to a group without it."""
    told = job.ends.get(event.process.pid)
    times = [told[0]] if told else []
    times += [group.t for number, group in job.groups.items()
              if event.member is not None and number > event.group
              and event.member not in group.ranks]
    return min(times, default=None)


def next_step(job, event):
    """When all others have ended a step that is without it, or beyond the one that it held up."""
    if event.member is None:
        return None

    def goes_on(step):
        if event.ends_process:
            return step.group > event.group and event.member not in job.groups[step.group].ranks
        return step.t > event.at and step.step > event.step + 1
    others = event.others if event.ends_process else [*event.others, event.process]
    times = [each.first_step(goes_on) for each in others]
    return max((each for each in times if each is not None), default=None)


def full_again(job, event):
    """When all ranks train together again, in a group that the event did not concern."""
    if not event.ends_process:
        return (next_step(job, event) if event.member is not None else
                event.process.first_step(lambda step: True))
    for number, group in sorted(job.groups.items()):
        if len(group.ranks) < job.ranks or event.member in group.ranks or number <= event.group:
            continue
        ends = [each.first_step(lambda step, number=number: step.group == number)
                for each in job.processes.values() if each.member in group.ranks]
        if len(ends) == job.ranks and None not in ends:
            return max(ends)
    return None


def rows_of(job, events):
    rows = []
    for event in sorted(events, key=lambda each: each.at):
        times = [None if when is None else when - event.at for when in (
            detected(job, event) if event.ends_process else None, next_step(job, event),
            full_again(job, event))]
        end = event.at + (times[2] or math.inf)
        overlaps = any(other is not event and event.at <= other.at < end for other in events)
        kind = event.kind + ("" if event.member is not None else ", joining")
        rows.append(Row(event, kind, *times, overlaps))
    return rows


def missing(row, rows):
    """Words for each thing that an event must have come to and has not."""
    event = row.event
    if event.ends_process and row.detected is None:
        yield "nobody noticed it"
    if event.member is not None and row.next_step is None:
        yield "the others made no step after it"
    is_killed_later = not event.ends_process and any(
        other.event.process is event.process and other.event.ends_process for other in rows)
    if row.full is None and not is_killed_later:
        yield "all ranks did not train together again"


def shown(seconds):
    return "-" if seconds is None else f"{seconds:.3f}"


def print_table(job, rows):
    line = "{:>8}  {:<19} {:>4} {:>6}  {:>10} {:>10} {:>14}"
    print(line.format("at", "event", "rank", "number", "noticed", "next step", "full strength"))
    for row in rows:
        event = row.event
        print(line.format(f"{event.at - job.begin:.1f}",
                          row.kind + (f", {event.seconds:.1f} s" if event.seconds else ""),
                          event.process.slot, "-" if event.member is None else event.member,
                          shown(row.detected), shown(row.next_step),
                          shown(row.full) + ("+" if row.overlaps else " ")))
    for kind in dict.fromkeys(row.kind for row in rows):
        of_kind = [row for row in rows if row.kind == kind]
        alone = [row for row in of_kind if not row.overlaps] or of_kind
        for name, function, chosen in (("median", statistics.median, alone),
                                       ("maximum", max, of_kind)):
            columns = [[row[place] for row in chosen if row[place] is not None]
                       for place in (2, 3, 4)]
            print(line.format(name, kind, "of", len(chosen),
                              *(shown(function(column)) if column else "-" for column in columns)))
    print("Seconds after the event; number: in the group; +: another event came before that. "
          "Medians are of events without +.")
