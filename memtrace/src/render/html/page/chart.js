// Memory over time: resident memory as a line, the layers below it, and the interval.

const HEIGHT = 260;
const EDGE = { left: 72, right: 12, top: 14, bottom: 26 };
// A layer has the same colour in every page.
const COLOURED = ["heap", "python", "torch-cpu", "torch-cuda", "vm", "cuda-runtime", "cuda-driver", "pinned", "hip"];
const COLOURS = 5;
const hiddenSeries = new Set();
let isRelative = false;

// Sums of the chosen process's values, or of all; null where there are none.
function summed(lists) {
  return times.map((_, at) => {
    const known = lists.map((list) => list[at]).filter((value) => value !== null && value !== undefined);
    return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0);
  });
}

function seriesOfChart() {
  const isShown = (process) => isComparison || state.process < 0 || process === state.process;
  const resident = data.processes.filter((_, process) => isShown(process)).map((process) => process.rss);
  const series = [];
  data.layers.forEach((layer, place) => {
    const live = data.live.filter((of) => of.layer === place && isShown(of.process));
    if (live.length === 0 || layer.name.includes("(by allocator)")) return;
    series.push({
      id: layer.name,
      name: layer.name,
      kind: layer.drawn === "stacked" ? "area" : "line",
      colour: `var(--c${Math.max(COLOURED.indexOf(layer.name), 0) % COLOURS})`,
      note: { space: "address space", within: "within other layers", device: "not in RSS" }[layer.drawn] ?? "",
      // Address space says little about memory in use.
      isExtra: layer.drawn === "space" || layer.drawn === "within",
      times,
      values: summed(live.map((of) => of.live)),
    });
  });
  series.push({ id: "rss", name: "RSS", kind: "rss", colour: "var(--rss)", note: "resident memory", times, values: summed(resident) });
  if (isComparison) {
    series.push({ id: "before", name: "RSS of the baseline", kind: "before", colour: "var(--before)", note: "", times: data.baseline.times, values: data.baseline.rss });
  }
  for (const one of series) if (isRelative && isResident(one)) one.values = relative(one.values);
  return series.filter((one) => one.values.some((value) => value !== null));
}

const isResident = (one) => one.kind === "rss" || one.kind === "before";

function relative(values) {
  const first = values.find((value) => value !== null) ?? 0;
  return values.map((value) => (value === null ? null : value - first));
}

// Whether the layers would be hard to see beside memory that was resident from the start.
function isMostlyOlder() {
  const most = (kinds) =>
    Math.max(0, ...seriesOfChart().filter((one) => kinds.includes(one.kind)).flatMap((one) => one.values));
  return most(["area"]) < most(["rss"]) / 4;
}

// Round steps of sizes.
function sizeStep(range) {
  const rough = range / 4;
  let step = 1;
  while (step * 1024 <= rough) step *= 1024;
  for (const factor of [1, 2, 5, 10, 20, 50, 100, 200, 500, 1024]) {
    if (step * factor >= rough) return step * factor;
  }
  return step * 1024;
}

function timeStep(range, most) {
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400];
  return steps.find((step) => range / step <= most) ?? range;
}

function path(points) {
  return points.map(([x, y], index) => `${index === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

let plot = null;

function drawChart() {
  const chart = byId("chart");
  const all = seriesOfChart();
  drawLegend(all);
  const shown = all.filter((one) => !hiddenSeries.has(one.id));
  const width = Math.max(chart.clientWidth, 280);
  const bottoms = times.map(() => 0);
  const areas = shown.filter((one) => one.kind === "area").map((one) => {
    const low = [...bottoms];
    one.values.forEach((value, at) => {
      bottoms[at] += value ?? 0;
    });
    return { one, low, high: [...bottoms] };
  });
  const lines = shown.filter((one) => one.kind !== "area");
  const values = [0, ...bottoms, ...lines.flatMap((one) => one.values.filter((value) => value !== null))];
  const [least, most] = [Math.min(...values), Math.max(...values, 1)];
  const step = sizeStep(most - least);
  const top = Math.ceil(most / step) * step;
  const bottom = Math.floor(least / step) * step;
  const end = Math.max(times[LAST] ?? 1, ...lines.map((one) => one.times[one.times.length - 1] ?? 0));
  const x = (time) => EDGE.left + (time / end) * (width - EDGE.left - EDGE.right);
  const y = (value) => EDGE.top + ((top - value) / (top - bottom)) * (HEIGHT - EDGE.top - EDGE.bottom);
  plot = { x, end, width };

  const svg = drawn("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: "img", "aria-label": chartInWords(all) });
  for (let value = bottom; value <= top + step / 2; value += step) {
    svg.append(drawn("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(value), y2: y(value) }));
    svg.append(drawn("text", { x: EDGE.left - 6, y: y(value) + 4, "text-anchor": "end" }, size(value)));
  }
  const every = timeStep(end, Math.max(width / 90, 2));
  for (let time = 0; time <= end; time += every) {
    svg.append(drawn("text", { x: x(time), y: HEIGHT - 6, "text-anchor": time === 0 ? "start" : "middle" }, `${+time.toFixed(1)} s`));
  }
  for (const { one, low, high } of areas) {
    const upper = high.map((value, at) => [x(times[at]), y(value)]);
    const lower = low.map((value, at) => [x(times[at]), y(value)]).reverse();
    svg.append(drawn("path", { class: "area", fill: one.colour, d: `${path([...upper, ...lower])}Z` }));
  }
  for (const one of lines) {
    const points = one.values
      .map((value, at) => (value === null ? null : [x(one.times[at]), y(value)]))
      .filter((point) => point !== null);
    const name = one.kind === "line" ? "line" : one.kind;
    svg.append(drawn("path", { class: name, stroke: one.colour, d: path(points) }));
  }
  if (!isWhole()) {
    const { from, to } = interval();
    const side = { class: "outside", y: EDGE.top, height: HEIGHT - EDGE.top - EDGE.bottom };
    svg.append(drawn("rect", { ...side, x: EDGE.left, width: x(from) - EDGE.left }));
    svg.append(drawn("rect", { ...side, x: x(to), width: Math.max(width - EDGE.right - x(to), 0) }));
    for (const time of [from, to]) {
      svg.append(drawn("line", { class: "edge", x1: x(time), x2: x(time), y1: EDGE.top, y2: HEIGHT - EDGE.bottom }));
    }
  }
  chart.replaceChildren(svg);
}

function chartInWords(all) {
  const words = all.map((one) => {
    const known = one.values.filter((value) => value !== null);
    return `${one.name} from ${size(known[0])} to ${size(known[known.length - 1])}`;
  });
  return `Memory over ${seconds(times[LAST] ?? 0)}: ${words.join(", ")}`;
}

function drawLegend(all) {
  // An ended process has nothing: its last figures are shown.
  const resident = all.find((one) => one.kind === "rss")?.values ?? [];
  let at = stops[state.to] ?? 0;
  while (at > 0 && (resident[at] ?? null) === null) at -= 1;
  const entries = all.map((one) => {
    const box = element("input", { type: "checkbox" });
    box.checked = !hiddenSeries.has(one.id);
    box.addEventListener("change", () => {
      if (box.checked) hiddenSeries.delete(one.id);
      else hiddenSeries.add(one.id);
      drawChart();
      byId("legend").querySelectorAll("input")[all.indexOf(one)].focus();
    });
    const swatch = element("span", { class: one.kind === "area" ? "swatch" : "swatch thin", "aria-hidden": "true" });
    swatch.style.background = one.colour;
    const note = one.note === "" ? "" : ` (${one.note})`;
    const value = one.kind === "before" ? one.values[one.values.length - 1] : one.values[at];
    const figure = value === null || value === undefined ? "" : ` ${isResident(one) && isRelative ? signed(value) : size(value)}`;
    return element("label", {}, box, swatch, `${one.name}${note}${figure}`);
  });
  const box = element("input", { type: "checkbox" });
  box.checked = isRelative;
  box.addEventListener("change", () => {
    isRelative = box.checked;
    drawChart();
    byId("legend").querySelector("label:last-child input").focus();
  });
  entries.push(element("label", {}, box, "RSS as change since the start"));
  byId("legend").replaceChildren(...entries);
}

function drawInterval() {
  const { from, to, length } = interval();
  const begin = byId("from");
  const end = byId("to");
  begin.value = state.from;
  end.value = state.to;
  begin.setAttribute("aria-valuetext", seconds(from));
  end.setAttribute("aria-valuetext", seconds(to));
  byId("whole").disabled = isWhole();
  byId("interval-text").textContent = isWhole()
    ? `Whole recording: ${seconds(to)}`
    : `${seconds(from)} to ${seconds(to)}: ${seconds(length)}`;
}

// The stop nearest to a time.
function stopAt(time) {
  let best = 0;
  stops.forEach((at, stop) => {
    if (Math.abs(times[at] - time) < Math.abs(times[stops[best]] - time)) best = stop;
  });
  return best;
}

function chooseInterval(a, b) {
  const last = stops.length - 1;
  const from = Math.max(0, Math.min(a, b, last - 1));
  const to = Math.min(last, Math.max(a, b, from + 1));
  choose({ from, to });
}

// Dragging over the chart chooses an interval.
function listenToDragging() {
  const chart = byId("chart");
  let start = null;
  const timeAt = (event) => {
    const box = chart.getBoundingClientRect();
    const inner = plot.width - EDGE.left - EDGE.right;
    const x = ((event.clientX - box.left) / box.width) * plot.width;
    return (Math.min(Math.max(x - EDGE.left, 0), inner) / inner) * plot.end;
  };
  chart.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = stopAt(timeAt(event));
    chart.setPointerCapture(event.pointerId);
  });
  chart.addEventListener("pointermove", (event) => {
    if (start === null) return;
    const end = stopAt(timeAt(event));
    if (end !== start) chooseInterval(start, end);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    chart.addEventListener(name, () => {
      start = null;
    });
  }
}

function startChart() {
  const hasChart = times.length > 1;
  byId("time").hidden = times.length === 0;
  if (times.length === 0) return;
  isRelative = isMostlyOlder();
  for (const one of seriesOfChart()) if (one.isExtra) hiddenSeries.add(one.id);
  const notes = ["Layers are live bytes of blocks allocated since the recording began. RSS also has memory from before, code, and memory that allocators keep."];
  if (isComparison) notes.push("Both recordings begin at 0 s. Growth is estimated over whole recordings, so no interval can be chosen.");
  else if (hasChart) notes.push("Drag over the chart, or move the sliders, to choose an interval: the flame graph and the table then show it.");
  byId("time-note").textContent = notes.join(" ");
  byId("interval").hidden = isComparison || !hasChart;
  for (const id of ["from", "to"]) {
    byId(id).max = stops.length - 1;
    byId(id).addEventListener("input", () => {
      chooseInterval(Number(byId("from").value), Number(byId("to").value));
    });
  }
  byId("whole").addEventListener("click", () => choose({ from: 0, to: stops.length - 1 }));
  const window_ = data.window;
  byId("window").hidden = window_ === undefined;
  if (window_ !== undefined) {
    byId("window").addEventListener("click", () => chooseInterval(stopAt(window_[0]), stopAt(window_[1])));
  }
  if (!isComparison && hasChart) listenToDragging();
  views.push((choices) => {
    if ("from" in choices || "process" in choices) drawChart();
    drawInterval();
  });
  new ResizeObserver(() => drawChart()).observe(byId("chart"));
  drawChart();
  drawInterval();
}

