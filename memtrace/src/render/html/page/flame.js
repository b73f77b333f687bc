// The flame graph, its callers on top: a tree of frames, as wide as their figures.

const ROW = 20;
let focused = -1;
let rows = new Map();

// What a node's width and colour stand for.
function nodeTotals() {
  const column = figures[state.metric];
  const totals = { width: totalsOfNodes(column), new: null, old: null };
  if (isComparison) {
    const isLive = state.metric === "live";
    totals.new = totalsOfNodes(isLive ? sites.live : sites.growth);
    totals.old = totalsOfNodes(isLive ? sites.baseline_live : sites.baseline_growth);
  }
  return totals;
}

function sumOf(column, nodes) {
  return nodes.reduce((sum, node) => sum + column[node], 0);
}

// The frames to draw, with their place from 0 to 1.
function laidOut(totals, whole) {
  const frames = [];
  const chain = [];
  for (let node = state.zoom; node >= 0; node = parentOf[node]) chain.unshift(node);
  chain.forEach((node, depth) => frames.push({ node, depth, left: 0, share: 1, isAbove: node !== state.zoom }));
  const base = state.zoom < 0 ? whole : totals.width[state.zoom];
  const least = 1 / Math.max(byId("tree").clientWidth, 300);
  const add = (nodes, depth, left) => {
    const order = nodes.filter((node) => totals.width[node] > 0);
    order.sort((a, b) => totals.width[b] - totals.width[a]);
    let at = left;
    for (const node of order) {
      const share = totals.width[node] / base;
      if (share < least) break;
      frames.push({ node, depth, left: at, share, isAbove: false });
      add(children[node], depth + 1, at);
      at += share;
    }
  };
  if (base > 0) add(state.zoom < 0 ? roots : children[state.zoom], chain.length, 0);
  return frames;
}

function classOf(node, totals) {
  if (matches.own[node]) return "match";
  if (!isComparison) return ["own", "library", "gap"][frameOf(node)[2]];
  const [before, after] = [totals.old[node], totals.new[node]];
  const difference = (after - before) / Math.max(after, before, Number.MIN_VALUE);
  if (Math.abs(difference) < 0.05) return "gap";
  const strength = Math.abs(difference) > 0.66 ? 3 : Math.abs(difference) > 0.33 ? 2 : 1;
  return `${difference > 0 ? "more" : "less"}${strength}`;
}

function describe(node, totals, whole) {
  const { words, name } = metric();
  const value = totals.width[node];
  const parts = [`${words(value)} of ${name}, ${percent(value / whole)} of the layer`];
  if (state.zoom >= 0) parts.push(`${percent(value / totals.width[state.zoom])} of the zoomed frame`);
  if (isComparison) {
    const unit = metric().words;
    parts.push(`this recording ${unit(totals.new[node])}, baseline ${unit(totals.old[node])}`);
  }
  return parts.join("; ");
}

function drawFlame() {
  const tree = byId("tree");
  const totals = nodeTotals();
  const whole = sumOf(totals.width, roots);
  if (state.zoom >= 0 && totals.width[state.zoom] <= 0) state.zoom = -1;
  const frames = laidOut(totals, whole);
  rows = new Map(frames.map((frame) => [frame.node, frame]));
  if (!rows.has(focused)) focused = frames[0]?.node ?? -1;
  const made = frames.map(({ node, depth, left, share, isAbove }) => {
    const place = placeOf(node);
    const file = place.split("/").pop();
    const text = place === "" ? nameOf(node) : `${nameOf(node)} ${file}`;
    const frame = element("div", {
      role: "treeitem",
      "data-node": node,
      "aria-level": depth + 1,
      "aria-selected": node === state.zoom,
      "aria-label": `${nameOf(node)} ${place}: ${describe(node, totals, whole)}`,
      tabindex: node === focused ? 0 : -1,
      class: `frame ${classOf(node, totals)}${isAbove ? " above" : ""}${share < 0.01 ? " slim" : ""}`,
    });
    if (share >= 0.01) frame.textContent = text;
    frame.style.left = `${left * 100}%`;
    frame.style.width = `${share * 100}%`;
    frame.style.top = `${depth * ROW}px`;
    frame.describe = () => `${nameOf(node)}  ${place}\n${describe(node, totals, whole)}`;
    return frame;
  });
  const depth = frames.reduce((most, frame) => Math.max(most, frame.depth + 1), 1);
  tree.style.height = `${depth * ROW + 2}px`;
  tree.replaceChildren(...made);
  byId("reset").disabled = state.zoom < 0;
  byId("flame-text").textContent = flameInWords(whole);
  byId("detail").textContent = "";
}

function flameInWords(whole) {
  const { words, name } = metric();
  const layer = data.layers[state.layer]?.name ?? "";
  if (whole <= 0) return `No ${name} in layer ${layer}.`;
  const text = `${layer}: ${words(whole)} of ${name} in ${plural(chosenSites().length, "site")}.`;
  if (!isSearched()) return text;
  const column = figures[state.metric];
  const found = chosenSites().filter((site) => matches.any[sites.node[site]]);
  const matched = found.reduce((sum, site) => sum + Math.max(column[site], 0), 0);
  return `${text} Matched: ${words(matched)}, ${percent(matched / whole)}.`;
}

function frameElement(node) {
  return byId("tree").querySelector(`[data-node="${node}"]`);
}

function focusFrame(node) {
  const frame = node === undefined ? null : frameElement(node);
  if (frame === null) return;
  frameElement(focused)?.setAttribute("tabindex", "-1");
  focused = node;
  frame.setAttribute("tabindex", "0");
  frame.focus();
}

function zoom(node) {
  const hadFocus = byId("tree").contains(document.activeElement);
  focused = node;
  choose({ zoom: node });
  if (hadFocus) focusFrame(node < 0 ? focused : node);
}

// The frame beside another one, in its row.
function beside(node, distance) {
  const here = rows.get(node);
  if (here === undefined) return undefined;
  const row = [...rows.values()].filter((frame) => frame.depth === here.depth);
  row.sort((a, b) => a.left - b.left);
  return row[row.indexOf(here) + distance]?.node;
}

function below(node) {
  const callees = children[node].filter((child) => rows.has(child));
  callees.sort((a, b) => rows.get(a).left - rows.get(b).left);
  return callees[0];
}

function onKey(event) {
  const moves = {
    ArrowDown: () => focusFrame(below(focused)),
    ArrowUp: () => focusFrame(parentOf[focused] < 0 ? undefined : parentOf[focused]),
    ArrowLeft: () => focusFrame(beside(focused, -1)),
    ArrowRight: () => focusFrame(beside(focused, 1)),
    Home: () => focusFrame([...rows.keys()][0]),
    Enter: () => zoom(focused),
    " ": () => zoom(focused),
    Escape: () => zoom(-1),
  };
  const move = moves[event.key];
  if (move === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  move();
}

function startFlame() {
  byId("flame").hidden = siteCount === 0;
  const tree = byId("tree");
  byId("flame-note").textContent = isComparison
    ? "Callers are on top. Red frames have more than the baseline, blue ones less; grey ones about as much."
    : "Callers are on top, the allocating functions below. Orange frames are the program's own, blue ones of libraries.";
  const frameOfEvent = (event) => event.target.closest(".frame");
  tree.addEventListener("click", (event) => {
    const frame = frameOfEvent(event);
    if (frame !== null) zoom(Number(frame.dataset.node));
  });
  tree.addEventListener("keydown", onKey);
  for (const name of ["focusin", "pointerover"]) {
    tree.addEventListener(name, (event) => {
      byId("detail").textContent = frameOfEvent(event)?.describe() ?? "";
    });
  }
  byId("reset").addEventListener("click", () => choose({ zoom: -1 }));
  views.push(drawFlame);
  let width = tree.clientWidth;
  new ResizeObserver(() => {
    if (tree.clientWidth !== width) {
      width = tree.clientWidth;
      drawFlame();
    }
  }).observe(tree);
  drawFlame();
}

