// The data of the page, the choices of its reader, and figures under these choices.

const data = JSON.parse(byId("data").textContent);
const isComparison = data.baseline !== undefined;
const { sites, times } = data;
const siteCount = sites.node.length;
const nodeCount = data.parents.length;
const LAST = times.length - 1;

const METRICS = isComparison
  ? [
      { id: "growth", name: "growth", words: (rate) => `${size(rate)}/${data.baseline.per}` },
      { id: "live", name: "live bytes", words: size },
      { id: "baseline_growth", name: "growth of the baseline", words: (rate) => `${size(rate)}/${data.baseline.per}` },
    ]
  : [
      { id: "live", name: "live bytes", words: size },
      { id: "allocated", name: "allocated bytes", words: size },
    ];

// Places of times at which an interval may begin or end.
const stops = [];
for (let at = LAST; at >= 0; at -= data.step) stops.unshift(at);

const state = {
  layer: firstLayer(),
  process: -1,
  metric: METRICS[0].id,
  query: "",
  from: 0,
  to: Math.max(stops.length - 1, 0),
  zoom: -1,
};

const parentOf = data.parents.map((distance, node) => (distance === 0 ? -1 : node - distance));
const frameOf = (node) => data.frames[data.node_frames[node]];
const nameOf = (node) => data.strings[frameOf(node)[0]];
const placeOf = (node) => data.strings[frameOf(node)[1]];

const children = Array.from({ length: nodeCount }, () => []);
const roots = [];
parentOf.forEach((parent, node) => (parent < 0 ? roots : children[parent]).push(node));

// The largest layer; address space only if there is nothing else.
function firstLayer() {
  const live = data.layers.map(() => 0);
  sites.layer.forEach((layer, site) => {
    live[layer] += sites.live[site] + (isComparison ? Math.abs(sites.growth[site]) : 0);
  });
  const rank = (layer) => {
    const { name, drawn: kind } = data.layers[layer];
    return name.includes("(by allocator)") ? 0 : kind === "space" ? 1 : 2;
  };
  const order = data.layers.map((_, layer) => layer);
  order.sort((a, b) => rank(b) - rank(a) || live[b] - live[a]);
  return order[0] ?? 0;
}

function metric() {
  return METRICS.find((known) => known.id === state.metric);
}

function isWhole() {
  return isComparison || (state.from === 0 && state.to === stops.length - 1);
}

// Beginning, end and length of the interval, seconds.
function interval() {
  const from = isWhole() ? 0 : times[stops[state.from]];
  const to = times[stops[state.to]] ?? 0;
  return { from, to, length: Math.max(to - from, 0) };
}

// The sum of a site's changes up to a time.
function upTo(course, last) {
  const sum = [0, 0, 0, 0];
  let at = 0;
  for (let place = 0; place < course.length; place += 5) {
    at += course[place];
    if (at > last) break;
    for (let figure = 0; figure < 4; figure += 1) sum[figure] += course[place + 1 + figure];
  }
  return sum;
}

// Figures of each site in the interval. Of the whole recording they are those of the report.
let figures = wholeFigures();

function wholeFigures() {
  if (isComparison) return sites;
  const growth = sites.courses.map((course, site) => sites.live[site] - upTo(course, 0)[0]);
  return { ...sites, growth };
}

function figuresOfInterval() {
  if (isWhole()) return wholeFigures();
  const columns = { live: [], blocks: [], allocated: [], allocations: [], growth: [] };
  for (const course of sites.courses) {
    const before = upTo(course, stops[state.from]);
    const after = upTo(course, stops[state.to]);
    columns.live.push(after[0]);
    columns.blocks.push(after[1]);
    columns.growth.push(after[0] - before[0]);
    columns.allocated.push(after[2] - before[2]);
    columns.allocations.push(after[3] - before[3]);
  }
  return columns;
}

// Whether a frame of each node, or of its callers, is what is searched for.
let matches = { own: [], any: [] };

function search() {
  const query = state.query.trim().toLowerCase();
  if (query === "") return { own: [], any: [] };
  const strings = data.strings.map((text) => text.toLowerCase().includes(query));
  const frames = data.frames.map(([name, place]) => strings[name] || strings[place]);
  const own = data.node_frames.map((frame) => frames[frame]);
  const any = [];
  own.forEach((match, node) => any.push(match || (parentOf[node] >= 0 && any[parentOf[node]])));
  return { own, any };
}

const isSearched = () => state.query.trim() !== "";

function isChosen(site) {
  return (
    sites.layer[site] === state.layer && (state.process < 0 || sites.process[site] === state.process)
  );
}

// Places of the sites of the chosen layer and process.
function chosenSites() {
  const chosen = [];
  for (let site = 0; site < siteCount; site += 1) if (isChosen(site)) chosen.push(site);
  return chosen;
}

// The sum of a column over each node's sites, those of its callees included.
function totalsOfNodes(column) {
  const totals = new Float64Array(nodeCount);
  for (const site of chosenSites()) totals[sites.node[site]] += Math.max(column[site], 0);
  for (let node = nodeCount - 1; node >= 0; node -= 1) {
    if (parentOf[node] >= 0) totals[parentOf[node]] += totals[node];
  }
  return totals;
}

const views = [];

// Changes choices and redraws the views.
function choose(choices) {
  Object.assign(state, choices);
  if ("from" in choices || "to" in choices) figures = figuresOfInterval();
  if ("query" in choices) matches = search();
  for (const view of views) view(choices);
}

