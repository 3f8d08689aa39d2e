"""What is right, the slow way: plain loops over rows, written from the definitions.

Definitions of DUP, distances, loss and order, the rules of the causes with their corrections, and
the epochs of a log. Nothing here is shared with the engines. Input are the literal rows of a
:class:`tests.support.analytics.run_builder.RunBuilder`; every table is a list.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.support.analytics.run_builder import MS, ZERO_MONO_NS, RunBuilder

Row = dict[str, Any]
FAILED = ("LATER", "EXC", "NULL", "SUSPEND")


class Oracle:
    """Answers for one run."""

    def __init__(self, builder: RunBuilder) -> None:
        self.rows = builder.rows
        self.groups = builder.run["groups"]
        self.broadcast = {g["name"] for g in self.groups if g["messageModel"] == "BROADCASTING"}
        warmup = builder.run["warmup_end_ns"]
        self.warmup = -(10**18) if warmup is None else warmup
        self.exits = {
            int(proc): end["t_ns"] for proc, end in (builder.closed or {}).get("exits", {}).items()
        }
        self._add_observed_ends()
        self.events = self._events()
        self.deliveries = [self._delivery(row) for row in self.rows["deliver"]]
        self.deliveries = [d for d in self.deliveries if d["qoff"] >= 0 and not d["backwards"]]
        self.assigns = [self._assign(row) for row in self.rows["assign"]]
        self.commits = [self._commit(row) for row in self.rows["commit"]]
        self.classes: dict[int, str] = {}
        self.causes: dict[int, str | None] = {}
        self.after: dict[int, bool] = {}
        self.inherited: set[int] = set()
        self._classify()

    def _add_observed_ends(self) -> None:
        """A witness's CLIENT_KILL or CLIENT_TERM tells the end of a process, too."""
        numbers = {row["proc"].hex(): row["proc_no"] for row in self.rows["assign"]}
        for row in self.rows["fault"]:
            seen = self.ns(row["observed"])
            if row["kind"] not in ("CLIENT_KILL", "CLIENT_TERM") or seen is None:
                continue
            proc = numbers.get(row["proc_ref"], json.loads(row["detail"] or "{}").get("proc_no"))
            if proc is not None:
                self.exits[proc] = min(seen, self.exits.get(proc, seen))

    # --- rows ------------------------------------------------------------------------------------

    def grp(self, row: Row) -> str:
        return f"{row['grp']}@{row['client_id']}" if row["grp"] in self.broadcast else row["grp"]

    @staticmethod
    def ns(value: int | None) -> int | None:
        return None if value is None else value - ZERO_MONO_NS

    def _delivery(self, row: Row) -> Row:
        bt, et = self.ns(row["bt"]), self.ns(row["et"])
        assert bt is not None
        epoch = self._epoch(row["broker"], row["ptopic"], row["qid"], row["store_ms"])
        if row["lane"] is not None and row["lseq"] is not None:
            lid: Any = (row["lane"], row["lseq"])
        elif row["ukey"]:
            lid = ("ukey", row["ukey"])
        elif row["keys"]:
            lid = ("keys", row["keys"])
        else:
            lid = ("copy", row["broker"], row["ptopic"], row["qid"], row["qoff"], row["omid"])
        grp = self.grp(row)
        copy = (grp, row["broker"], row["ptopic"], row["qid"], row["qoff"], row["omid"])
        return {**row, "grp": grp, "bt": bt, "et": et, "lid": lid, "copy": copy, "epoch": epoch,
                "queue": (grp, row["broker"], row["ptopic"], row["qid"]),
                "backwards": et is not None and et < bt}  # fmt: skip

    def _assign(self, row: Row) -> Row:
        grp = self.grp(row)
        end_t, reason = self.ns(row["end_t"]), row["end_reason"]
        for end in self.rows["assign_end"]:
            if end_t is None and (end["proc_no"], end["pqe"]) == (row["proc_no"], row["pqe"]):
                end_t, reason = self.ns(end["end_t"]), end["end_reason"]
        t = self.ns(row["t"])
        assert t is not None
        if end_t is None and row["proc_no"] in self.exits:
            end_t, reason = max(t, self.exits[row["proc_no"]]), "CRASH"
        src = "NO_ENTRY" if row["src"] == "STORE" and self._no_entry(row) else row["src"]
        return {**row, "grp": grp, "t": t, "end_t": end_t, "end_reason": reason, "src": src,
                "queue": (grp, row["broker"], row["ptopic"], row["qid"])}  # fmt: skip

    def _no_entry(self, row: Row) -> bool:
        """The answer was 0 or -1, and the last look into that table found nothing for the queue."""
        looks = [
            s
            for s in self.rows["broker_offset_sample"]
            if (s["addr"], s["binc"], s["source"]) == (row["src_addr"], row["src_binc"], "code43")
            and s["t"] <= row["t"]
        ]
        if row["start_off"] > 0 or not looks:
            return False
        last = max(s["t"] for s in looks)
        queue = (row["grp"], row["ptopic"], row["qid"])
        return not any(s["t"] == last and (s["grp"], s["ptopic"], s["qid"]) == queue for s in looks)

    def _commit(self, row: Row) -> Row:
        grp = self.grp(row)
        return {**row, "grp": grp, "t": self.ns(row["t"]),
                "queue": (grp, row["broker"], row["ptopic"], row["qid"])}  # fmt: skip

    # --- epochs ----------------------------------------------------------------------------------

    def _events(self) -> dict[tuple[str, str, int], list[tuple[int, int, int]]]:
        """Per queue (boot_ms, cut, t): a master that began with less than had been known."""
        samples = self.rows["broker_queue_sample"]
        first_seen: dict[tuple[str, int], int] = {}
        for sample in samples:
            if sample["bid"] == 0 and sample["binc"] is not None:
                at = (sample["broker"], sample["binc"])
                t = self.ns(sample["t"])
                assert t is not None
                first_seen[at] = min(first_seen.get(at, t), t)
        found: dict[tuple[str, str, int], list[tuple[int, int, int]]] = defaultdict(list)
        for (broker, boot), t in first_seen.items():
            if boot == min(
                (b for w, b in first_seen if w == broker), key=lambda b: (first_seen[broker, b], b)
            ):
                continue  # whatever the first one had is all there was
            queues = {(s["ptopic"], s["qid"]) for s in samples if s["broker"] == broker}
            for topic, qid in queues:
                mine = [
                    s
                    for s in samples
                    if (s["bid"], s["broker"], s["ptopic"], s["qid"]) == (0, broker, topic, qid)
                ]
                here = sorted((s["t"], s["max"]) for s in mine if s["binc"] == boot)
                if not here:
                    continue
                cut = here[0][1]
                known = [s["max"] for s in mine if s["binc"] != boot and self.ns(s["t"]) < t]  # type: ignore[operator]
                known += [d["qoff"] + 1 for d in self.rows["deliver"]
                          if (d["broker"], d["ptopic"], d["qid"]) == (broker, topic, qid)
                          and d["store_ms"] < boot]  # fmt: skip
                known += [p["queue_offset"] + 1 for p in self.rows["produce"]
                          if (p["broker"], p["topic"], p["qid"]) == (broker, topic, qid)
                          and p["queue_offset"] is not None and p["res"].startswith("OK")
                          and p["wall_ns"] // MS < boot]  # fmt: skip
                if known and cut < max(known):
                    found[broker, topic, qid].append((boot, cut, t))
        return {queue: sorted(events) for queue, events in found.items()}

    def _epoch(self, broker: str, topic: str, qid: int, store_ms: int) -> int:
        return sum(boot <= store_ms for boot, _, _ in self.events.get((broker, topic, qid), ()))

    def _epoch_at(self, queue: tuple[Any, ...], t: int) -> int:
        return sum(at <= t for _, _, at in self.events.get(queue[1:], ()))

    def _lives_in(self, d: Row, epoch: int) -> bool:
        """Whether the copy is in the log of an epoch: born by then, and not cut away since."""
        cuts = [cut for _, cut, _ in self.events.get(d["queue"][1:], ())]
        return d["epoch"] <= epoch and all(d["qoff"] < cut for cut in cuts[d["epoch"] : epoch])

    # --- classes and causes ----------------------------------------------------------------------

    def of_message(self, d: Row) -> list[Row]:
        same = [e for e in self.deliveries if (e["grp"], e["lid"]) == (d["grp"], d["lid"])]
        return sorted(same, key=lambda e: (e["bt"], e["did"]))

    def _classify(self) -> None:
        for d in self.deliveries:
            history = self.of_message(d)
            before = history[: history.index(d)]
            self.classes[d["did"]] = self._class(d, before)
            ends = [e["et"] for e in history
                    if e is not d and e["status"] == "SUCCESS" and e["et"] is not None]  # fmt: skip
            self.after[d["did"]] = bool(before and ends and d["bt"] >= min(ends))
        for d in sorted(self.deliveries, key=lambda d: (d["rt"], d["bt"], d["did"])):
            if self.classes[d["did"]] == "DUP":
                self.causes[d["did"]] = self._cause(d)
        self._inherit()

    def _class(self, d: Row, before: list[Row]) -> str:
        if not before:
            return "PRIMARY"
        first_at_rt = not any(e["rt"] == d["rt"] for e in before)
        failed = any(
            e["rt"] == d["rt"] - 1 and e["status"] in FAILED and e["et"] is not None
            and e["et"] <= d["bt"]
            for e in self.of_message(d)
        )  # fmt: skip
        return "RETRY" if d["rt"] > 0 and first_at_rt and failed else "DUP"

    def _assign_of(self, d: Row) -> Row | None:
        for a in self.assigns:
            if (a["queue"], a["inc"], a["pqe"]) == (d["queue"], d["inc"], d["pqe"]):
                return a
        return None

    def _cause(self, d: Row) -> str | None:
        copies = sorted(
            (e for e in self.deliveries if e["copy"] == d["copy"]),
            key=lambda e: (e["bt"], e["did"]),
        )
        earlier = copies[: copies.index(d)]
        if any((e["inc"], e["pqe"]) == (d["inc"], d["pqe"]) for e in earlier):
            return "CLIENT_BUG"
        if earlier:
            return self._same_copy(d, earlier[-1])
        if d["ptopic"].startswith("%RETRY%"):
            return self._retry_copy(d)
        return self._producer(d)

    def _same_copy(self, d: Row, prev: Row) -> str | None:
        a, p = self._assign_of(d), self._assign_of(prev)
        if a is None or p is None:
            return None
        if self._was_reset(d, prev, a, p):
            return "OFFSET_RESET"
        covering = [
            k for k in self.commits
            if k["sent"] and k["queue"] == d["queue"] and k["t"] <= a["t"] and k["off"] > d["qoff"]
            and self._lives_in(d, self._epoch_at(d["queue"], k["t"]))
        ]  # fmt: skip
        if covering:
            return self._rollback(a, covering)
        if p["end_t"] is None or p["end_t"] > a["t"]:
            return "OVERLAP"
        return None if p["end_reason"] is None else f"TAIL_{p['end_reason']}"

    def _was_reset(self, d: Row, prev: Row, a: Row, p: Row) -> bool:
        resets = []
        if p["end_reason"] == "RESET" and p["end_t"] is not None:
            resets.append(p["end_t"])
        resets += [
            k["t"] for k in self.commits
            if k["kind"] == "ADMIN_RESET" and k["queue"] == d["queue"] and k["off"] <= d["qoff"]
        ]  # fmt: skip
        return any(
            prev["bt"] <= t <= a["t"]
            and not any(
                k["sent"] and k["result"] in (None, "OK", "SENT") and k["queue"] == d["queue"]
                and t < k["t"] <= a["t"] and k["off"] > d["qoff"]
                for k in self.commits
            )
            for t in resets
        )  # fmt: skip

    @staticmethod
    def _rollback(a: Row, covering: list[Row]) -> str | None:
        bid, binc = a["src_bid"], a["src_binc"]
        if a["src"] == "NO_ENTRY":
            return "ROLLBACK_NO_ENTRY"
        if bid is None:
            return None
        same = [k for k in covering if k["bid"] == bid]
        if any(binc is not None and k["binc"] == binc for k in same):
            return "ROLLBACK_OVERWRITTEN"
        if same:
            return None if binc is None else "ROLLBACK_RESTART"
        if all(k["bid"] is None for k in covering):
            return None
        return "ROLLBACK_SLAVE_ONLY_PROGRESS" if bid == 0 else "ROLLBACK_STALE_SLAVE"

    def _sendbacks(self, d: Row) -> list[Row]:
        def lid(s: Row) -> Any:
            return ("ukey", s["ukey"]) if s["lane"] is None else (s["lane"], s["lseq"])

        return [
            s
            for s in self.rows["sendback"]
            if self.grp(s) == d["grp"] and s["rt_next"] == d["rt"] and lid(s) == d["lid"]
        ]

    def _retry_copy(self, d: Row) -> str:
        history = self.of_message(d)
        seen = any(e["rt"] == d["rt"] for e in history[: history.index(d)])
        backs = self._sendbacks(d)
        if seen:
            stored = {(s["proc_no"], s["omid"], s["reason"], s["path"]) for s in backs if s["ok"]}
            return "SENDBACK_DUP" if len(stored) > 1 else "DELAY_REPLAY"
        return (
            "CONSUME_TIMEOUT" if any(s["reason"] == "EXPIRE" for s in backs) else "SENDBACK_ORPHAN"
        )

    def _producer(self, d: Row) -> str | None:
        sent = [
            p for p in self.rows["produce"]
            if p["lane"] is not None and (p["lane"], p["lseq"]) == d["lid"]
        ]  # fmt: skip
        if not sent:
            return None
        if len({p["ukey"] for p in sent if p["ukey"] is not None}) > 1:
            return "APP_RESEND"
        if any(p["res"] in ("TIMEOUT", "CONN", "UNKNOWN") for p in sent):
            return "SEND_TIMEOUT_DUP"
        degraded = [p["att"] for p in sent if p["res"] == "OK_DEGRADED"]
        if degraded and any(p["att"] > min(degraded) for p in sent):
            return "NOT_STORE_OK_RESEND"
        return "BROKER_COPY"

    def _failed_handling(self, back: Row, history: list[Row]) -> Row | None:
        """What was sent back: the latest the process began of that copy, at one rt less."""
        t0 = self.ns(back["t0"])
        assert t0 is not None
        failed = [
            e for e in history
            if e["proc_no"] == back["proc_no"] and e["rt"] == back["rt_next"] - 1 and e["bt"] <= t0
            and back["omid"] in (None, e["omid"])
        ]  # fmt: skip
        return max(failed, key=lambda e: (e["bt"], e["did"]), default=None)

    def _way(self, s: Row, history: list[Row]) -> tuple[Any, ...]:
        """Rows of one way to send one failed handling back."""
        source = self._failed_handling(s, history)
        return (s["proc_no"], s["omid"], source and source["did"], s["reason"], s["path"])

    def _inherit(self) -> None:
        """A retry copy whose failed handling was itself a DUP has that DUP's cause."""
        for rt in sorted({d["rt"] for d in self.deliveries}):
            done: set[tuple[Any, ...]] = set()
            for d in self.deliveries:
                key = (d["grp"], d["lid"])
                if d["rt"] != rt or key in done or not d["ptopic"].startswith("%RETRY%"):
                    continue
                done.add(key)
                history = self.of_message(d)
                copies = []
                for e in history:
                    first = min((f for f in self.deliveries if f["copy"] == e["copy"]),
                                key=lambda f: (f["bt"], f["did"]))  # fmt: skip
                    if e["rt"] == rt and e is first and e["ptopic"].startswith("%RETRY%"):
                        copies.append(e)
                last: dict[tuple[Any, ...], Row] = {}
                for s in sorted(self._sendbacks(d), key=lambda s: (s["t0"], s["seq"])):
                    if s["ok"]:
                        last[self._way(s, history)] = s
                backs = sorted(last.values(), key=lambda s: (s["t0"], s["proc_no"], s["seq"]))
                for copy, back in zip(copies, backs, strict=False):
                    source = self._failed_handling(back, history)
                    if source is None or self.classes[copy["did"]] != "DUP":
                        continue
                    if self.classes[source["did"]] == "DUP":
                        self.causes[copy["did"]] = self.causes[source["did"]]
                        self.inherited.add(copy["did"])

    # --- figures ---------------------------------------------------------------------------------

    def counts(self, grp: str) -> dict[str, int]:
        shown = [d for d in self.deliveries if d["grp"] == grp and d["bt"] >= self.warmup]
        dups = [d for d in shown if self.classes[d["did"]] == "DUP"]
        return {
            "delivered": len(shown),
            "distinct": len({d["lid"] for d in shown}),
            "retry": sum(self.classes[d["did"]] == "RETRY" for d in shown),
            "dup": len(dups),
            "dup_after_success": sum(self.after[d["did"]] for d in dups),
            "dup_messages": len({d["lid"] for d in dups}),
            "abandoned": sum(d["et"] is None for d in shown),
        }

    def distances(self, a: Row) -> tuple[int, int]:
        """Committed and processed rollback distance, offsets of a cut log clipped to the cut."""
        now = self._epoch_at(a["queue"], a["t"])
        cuts = [cut for _, cut, _ in self.events.get(a["queue"][1:], ())]

        def left(value: int, epoch: int) -> int:
            return min([value, *cuts[epoch:now]])

        committed = [
            left(k["off"], self._epoch_at(a["queue"], k["t"]))
            for k in self.commits
            if k["sent"] and k["queue"] == a["queue"] and k["t"] <= a["t"]
        ]
        processed = [
            left(d["qoff"] + 1, d["epoch"])
            for d in self.deliveries
            if d["queue"] == a["queue"] and d["status"] == "SUCCESS" and d["et"] is not None
            and d["et"] <= a["t"]
        ]  # fmt: skip
        start = a["start_off"]
        return (
            max(0, max(committed) - start) if committed else 0,
            max(0, max(processed) - start) if processed else 0,
        )

    def redelivered(self, a: Row) -> set[int]:
        """Offsets delivered under an assignment whose copy another holder had delivered before."""
        found = set()
        for d in self.deliveries:
            if (d["queue"], d["inc"], d["pqe"]) != (a["queue"], a["inc"], a["pqe"]):
                continue
            copies = sorted(
                (e for e in self.deliveries if e["copy"] == d["copy"]),
                key=lambda e: (e["bt"], e["did"]),
            )
            at = copies.index(d)
            if at and (copies[at - 1]["inc"], copies[at - 1]["pqe"]) != (d["inc"], d["pqe"]):
                found.add(d["qoff"])
        return found

    def fates(self, grp: str, topics: Iterable[str]) -> dict[str, int]:
        """Fate of every message sent after the warm-up to the group's topics."""
        group = next((g for g in self.broadcast if grp.startswith(f"{g}@")), grp)
        found: dict[str, int] = defaultdict(int)
        sent = {
            (p["topic"], p["lane"], p["lseq"])
            for p in self.rows["produce"]
            if p["topic"] in topics and p["lane"] is not None and self.ns(p["t0"]) >= self.warmup  # type: ignore[operator]
        }
        for topic, lane, lseq in sent:
            acked = any(
                p["res"] in ("OK", "OK_DEGRADED")
                for p in self.rows["produce"]
                if (p["topic"], p["lane"], p["lseq"]) == (topic, lane, lseq)
            )
            mine = [d for d in self.deliveries if d["grp"] == grp and d["lid"] == (lane, lseq)]
            stored = [
                s["ptopic"] for s in self.rows["scan"]
                if (s["lane"], s["lseq"]) == (lane, lseq)
                and s["ptopic"] in (topic, f"%RETRY%{group}", f"%DLQ%{group}")
            ]  # fmt: skip
            if any(d["status"] == "SUCCESS" and d["et"] is not None for d in mine):
                fate = "OK"
            elif f"%DLQ%{group}" in stored:
                fate = "DLQ"
            elif acked and not stored:
                fate = "STORE_LOST"
            elif acked and not mine:
                fate = "SKIPPED"
            elif acked:
                fate = "FAILED_NOT_DLQ"
            else:
                fate = "UNACKED_PRESENT" if stored else "UNACKED_ABSENT"
            found[fate] += 1
        return dict(found)

    def inversions(self, grp: str, topic: str) -> tuple[int, int]:
        """Deliveries with a greater kseq of their key begun before: of firsts, of repeats."""
        mine = [
            d for d in self.deliveries
            if d["grp"] == grp and d["ltopic"] == topic and d["okey"] is not None
            and d["kseq"] is not None
        ]  # fmt: skip
        first = replay = 0
        for d in mine:
            before = [
                e["kseq"] for e in mine
                if e["okey"] == d["okey"] and (e["bt"], e["did"]) < (d["bt"], d["did"])
            ]  # fmt: skip
            if d["bt"] >= self.warmup and before and d["kseq"] < max(before):
                if self.classes[d["did"]] == "PRIMARY":
                    first += 1
                else:
                    replay += 1
        return first, replay
