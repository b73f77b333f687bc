// Sites by the line of the program, as a table that can be sorted and searched.

const FIRST_ROWS = 100;
const COLUMNS = isComparison
  ? [
      { id: "live", name: "Live", words: size },
      { id: "baseline_live", name: "Live, baseline", words: size },
      { id: "growth", name: `Growth/${data.baseline.per}`, words: signed },
      { id: "baseline_growth", name: `Growth/${data.baseline.per}, baseline`, words: signed },
      { id: "difference", name: "Difference", words: signed, isChange: true },
    ]
  : [
      { id: "live", name: "Live", words: size },
      { id: "blocks", name: "Blocks", words: grouped },
      { id: "growth", name: "Growth", words: signed, isChange: true },
      { id: "rate", name: "Growth/s", words: signed },
      { id: "allocated", name: "Allocated", words: size },
    ];
const order = { column: isComparison ? "difference" : "live", isRising: false };
let isListedWhole = false;

// The sums of each line's sites, and of all.
function lineRows() {
  const lines = new Map();
  const { length } = interval();
  const names = isComparison
    ? ["live", "baseline_live", "growth", "baseline_growth"]
    : ["live", "blocks", "growth", "allocated"];
  const empty = () => Object.fromEntries(names.map((name) => [name, 0]));
  const finish = (row) => {
    row.rate = length > 0 ? row.growth / length : 0;
    row.difference = row.growth - row.baseline_growth;
    return row;
  };
  const total = empty();
  for (const site of chosenSites()) {
    if (isSearched() && !matches.any[sites.node[site]]) continue;
    const line = sites.line[site];
    if (!lines.has(line)) lines.set(line, { line, ...empty() });
    for (const name of names) {
      lines.get(line)[name] += figures[name][site];
      total[name] += figures[name][site];
    }
  }
  const rows = [...lines.values()].map(finish).filter((row) => names.some((name) => row[name] !== 0));
  return { rows, total: finish(total) };
}

const nameOfLine = (line) => data.strings[data.lines[line][0]];
const placeOfLine = (line) => data.strings[data.lines[line][1]];

function sortRows(rows) {
  const { column } = order;
  rows.sort((a, b) =>
    column === "line"
      ? nameOfLine(a.line).localeCompare(nameOfLine(b.line))
      : a[column] - b[column] || a.live - b.live,
  );
  if (!order.isRising) rows.reverse();
}

function cellsOf(row, total) {
  // In a comparison a share of the difference would mix growth with shrinkage.
  const of = isComparison ? "growth" : "live";
  const share = total[of] > 0 ? Math.max(row[of], 0) / total[of] : 0;
  const fill = element("i");
  fill.style.width = `${Math.min(share, 1) * 100}%`;
  const bar = element("span", { class: "share", "aria-hidden": "true" }, fill);
  const cells = COLUMNS.map((column) => {
    // Growth worth a look.
    const isUp = column.isChange && row[column.id] > 0 && row[column.id] >= total[column.id] / 20;
    return element("td", { class: `number${isUp ? " up" : ""}` }, column.words(row[column.id]));
  });
  return [...cells, element("td", { class: "number" }, bar, element("span", { class: "percent" }, percent(share)))];
}

function rowOf(row, total) {
  const [name, place] = [nameOfLine(row.line), placeOfLine(row.line)];
  const button = element("button", { type: "button", class: "name", title: "Search for this line" }, name);
  button.addEventListener("click", () => {
    byId("query").value = place === "" ? name : place;
    choose({ query: byId("query").value });
  });
  const head = element("th", { scope: "row" }, button, element("span", { class: "place" }, place));
  return element("tr", {}, head, ...cellsOf(row, total));
}

function drawTable() {
  const table = byId("table");
  const { rows, total } = lineRows();
  sortRows(rows);
  const shown = isListedWhole ? rows : rows.slice(0, FIRST_ROWS);
  table.tBodies[0].replaceChildren(...shown.map((row) => rowOf(row, total)));
  const sum = element("tr", {}, element("th", { scope: "row" }, `Total of ${plural(rows.length, "line")}`), ...cellsOf(total, total));
  table.tFoot.replaceChildren(sum);
  const layer = data.layers[state.layer]?.name ?? "";
  const { from, to } = interval();
  const searched = isSearched() ? `, with “${state.query.trim()}” in their stacks` : "";
  byId("lines-caption").textContent = isComparison
    ? `Layer ${layer}, whole recordings${searched}`
    : `Layer ${layer}, ${isWhole() ? "whole recording" : `${seconds(from)} to ${seconds(to)}`}${searched}`;
  byId("more").hidden = shown.length === rows.length;
  byId("more").textContent = `Show all ${plural(rows.length, "line")}`;
  for (const head of table.tHead.rows[0].cells) {
    const { column } = head.dataset;
    if (column === order.column) head.setAttribute("aria-sort", order.isRising ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  }
  byId("lines-note").textContent = linesNote();
}

function linesNote() {
  if (isComparison) return "Growth is bytes per unit, from the slope of live bytes; share is of the growth in this recording.";
  const moment = isWhole()
    ? "Live figures are those of the report: at the end, or at the peak of a process that exited by itself. Growth is counted from the first interval."
    : "Live figures are those at the end of the chosen interval; growth and allocations are those within it.";
  return `${moment} Share is of the layer's live bytes. Layers overlap, so one is shown at a time.`;
}

function startTable() {
  byId("lines").hidden = siteCount === 0;
  const heads = [{ id: "line", name: "Line" }, ...COLUMNS].map((column) => {
    const button = element("button", { type: "button" }, column.name);
    button.addEventListener("click", () => {
      order.isRising = order.column === column.id ? !order.isRising : column.id === "line";
      order.column = column.id;
      drawTable();
    });
    const name = column.id === "line" ? "" : "number";
    return element("th", { scope: "col", class: name, "data-column": column.id }, button);
  });
  heads.push(element("th", { scope: "col", class: "number" }, "Share"));
  byId("table").tHead.replaceChildren(element("tr", {}, ...heads));
  byId("more").addEventListener("click", () => {
    isListedWhole = true;
    drawTable();
  });
  views.push((choices) => {
    if (Object.keys(choices).some((choice) => choice !== "zoom")) drawTable();
  });
  drawTable();
}

