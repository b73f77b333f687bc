"""Reads the exports in a folder with the readers' own code, and compares their totals with the report's.

    read.py FOLDER [TRACE_PROCESSOR]

For pprof, speedscope and Firefox it is the viewer itself; for Perfetto and OpenTelemetry it is the code that these
projects generate from their protocols. With Perfetto's trace processor, that reads the export too.
"""

import base64
import collections
import csv
import json
import pathlib
import re
import subprocess
import sys

from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

FIGURES = {
    "inuse_space": "live_bytes",
    "inuse_objects": "live_count",
    "alloc_space": "alloc_bytes",
    "alloc_objects": "alloc_count",
}


def layer(name):
    """An allocator's mappings are part of their layer's totals."""
    return name.removesuffix(" (by allocator)")


def reported(folder, reader):
    report = json.loads((folder / "report.json").read_text())
    totals = collections.Counter()
    for total in report["totals"]:
        for figure in FIGURES.values():
            totals[total["layer"], figure] += total[figure]
    if reader in (perfetto, trace_processor):
        # Its format has no more blocks than allocations.
        for site in report["sites"]:
            totals[site["layer"], "alloc_count"] += max(0, site["live_count"] - site["alloc_count"])
    return +totals


def pprof(folder):
    totals = collections.Counter()
    for name, figure in FIGURES.items():
        command = ["go", "tool", "pprof", "-tags", "-unit=B", f"-sample_index={name}", folder / "pprof"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        tags = re.search(r"^ layer: Total.*?\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE).group(1)
        for value, of in re.findall(r"^ *([0-9.]+)B? .*?%\): (.*)$", tags, re.MULTILINE):
            totals[layer(of), figure] += round(float(value))
    return +totals


def speedscope(folder):
    """Its list of profiles has their weights, with two decimals."""
    content = base64.b64encode((folder / "speedscope").read_bytes()).decode()
    script = folder / "speedscope.js"
    script.write_text(f'speedscope.loadFileFromBase64("speedscope.json", "{content}")')
    page = folder / "node_modules/speedscope/dist/release/index.html"
    command = ["chromium", "--headless", "--no-sandbox", "--virtual-time-budget=60000", "--dump-dom"]
    command.append(f"{page.absolute().as_uri()}#localProfilePath={script.absolute()}")
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    totals = collections.Counter()
    errors = collections.Counter()
    for name, metric, value, unit in re.findall(r'<tr title="([^"]*), ([a-z]+-bytes)".*?>([0-9.]+) ([KMGT]?B)</td>', text):
        size = 1024 ** "BKMGT".index(unit[0])
        of = layer(name), metric.replace("-", "_")
        totals[of] += float(value) * size
        errors[of] += 0.005 * size
    return {of: Rounded(total, errors[of]) for of, total in totals.items()}


class Rounded:
    """A number that is known up to an error."""

    def __init__(self, value, error):
        self.value, self.error = value, error

    def __eq__(self, exact):
        return abs(self.value - exact) <= self.error

    def __repr__(self):
        return f"{self.value} ± {self.error}"


def firefox(folder):
    def cli(*arguments):
        command = [folder / "venv/bin/node", folder / "node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js"]
        return subprocess.run([*command, *arguments], check=True, capture_output=True, text=True).stdout

    totals = collections.Counter()
    cli("load", folder / "firefox")
    try:
        for thread in json.loads(cli("thread", "list", "--json"))["threads"]:
            samples = json.loads(cli("thread", "samples", "--thread", thread["threadHandle"], "--include-idle", "--json"))
            # Without live bytes it shows allocated ones.
            if samples["callTreeSummaryStrategy"] == "timing":
                totals[layer(thread["name"]), "live_bytes"] += samples["categoryBreakdown"]["totalSamples"]
    finally:
        cli("stop", "--all")
    return +totals


def perfetto(folder):
    trace = Trace.FromString((folder / "perfetto").read_bytes())
    totals = collections.Counter()
    for packet in trace.packet:
        data = packet.interned_data
        mappings = {of.iid for of in data.mappings}
        names = {of.iid for of in data.function_names}
        frames = {of.iid for of in data.frames if of.mapping_id in mappings and of.function_name_id in names}
        stacks = {of.iid for of in data.callstacks if of.frame_ids and frames.issuperset(of.frame_ids)}
        for heap in packet.profile_packet.process_dumps:
            for sample in heap.samples:
                # Its trace processor drops a sample whose stack leads nowhere.
                if sample.callstack_id in stacks:
                    of = layer(heap.heap_name)
                    totals[of, "live_bytes"] += sample.self_allocated - sample.self_freed
                    totals[of, "live_count"] += sample.alloc_count - sample.free_count
                    totals[of, "alloc_bytes"] += sample.self_allocated
                    totals[of, "alloc_count"] += sample.alloc_count
    tracks = {packet.track_descriptor.name for packet in trace.packet}
    assert "resident memory" in tracks and any(name.startswith("live bytes: ") for name in tracks), tracks
    return +totals


def trace_processor(folder):
    def query(sql):
        command = [sys.argv[2], "query", folder / "perfetto", sql]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return list(csv.reader(text.splitlines()))[1:]

    problems = query("select name, value from stats where value != 0 and severity in ('error', 'data_loss')")
    assert not problems, problems
    curves = {name for (name,) in query("select distinct name from counter join track on track.id = track_id")}
    assert "resident memory" in curves and any(name.startswith("live bytes: ") for name in curves), curves
    totals = collections.Counter()
    allocations = """
        select heap_name, sum(size), sum(count), sum(iif(size > 0, size, 0)), sum(iif(count > 0, count, 0))
        from heap_profile_allocation
        join stack_profile_callsite on stack_profile_callsite.id = callsite_id
        join stack_profile_frame on stack_profile_frame.id = frame_id
        where stack_profile_frame.name != ''
        group by heap_name"""
    for name, *values in query(allocations):
        for figure, value in zip(FIGURES.values(), values, strict=True):
            totals[layer(name), figure] += int(value)
    return +totals


def otlp(folder):
    request = ExportProfilesServiceRequest.FromString((folder / "otlp").read_bytes())
    tables = request.dictionary
    text = tables.string_table
    totals = collections.Counter()
    for resource in request.resource_profiles:
        for profile in (profile for scope in resource.scope_profiles for profile in scope.profiles):
            figure = FIGURES[text[profile.sample_type.type_strindex]]
            for sample in profile.samples:
                for place in tables.stack_table[sample.stack_index].location_indices:
                    location = tables.location_table[place]
                    mapping = tables.mapping_table[location.mapping_index]
                    assert not location.mapping_index or mapping.memory_start <= location.address < mapping.memory_limit
                    assert all(tables.function_table[line.function_index].name_strindex for line in location.lines)
                attributes = [tables.attribute_table[place] for place in sample.attribute_indices]
                (of,) = [of.value.string_value for of in attributes if text[of.key_strindex] == "memtrace.layer"]
                totals[layer(of), figure] += sum(sample.values)
    return +totals


folder = pathlib.Path(sys.argv[1])
readers = [pprof, speedscope, firefox, perfetto, otlp]
if len(sys.argv) > 2:
    readers.append(trace_processor)
for reader in readers:
    found, expected = reader(folder), reported(folder, reader)
    figures = {figure for _, figure in found}
    wanted = {of: total for of, total in expected.items() if of[1] in figures}
    different = {of: (found.get(of), total) for of, total in wanted.items() if found.get(of) != total}
    different |= {of: (total, None) for of, total in found.items() if of not in wanted}
    print(f"{reader.__name__}: {len(found)} totals", f"differ: {different}" if different else "equal the report's")
    if different or not found:
        sys.exit(1)
