// The choices, and the start of all parts.

function startControls() {
  byId("controls").hidden = siteCount === 0;
  const layer = byId("layer");
  const live = data.layers.map(() => 0);
  sites.layer.forEach((place, site) => {
    live[place] += sites.live[site];
  });
  data.layers.forEach(({ name }, place) => {
    layer.append(element("option", { value: place }, `${name}, ${size(live[place])} live`));
  });
  layer.value = state.layer;
  layer.addEventListener("change", () => choose({ layer: Number(layer.value), zoom: -1 }));

  const process = byId("process");
  byId("process-choice").hidden = data.processes.length < 2;
  process.append(element("option", { value: -1 }, "all processes"));
  data.processes.forEach(({ name }, place) => process.append(element("option", { value: place }, name)));
  process.addEventListener("change", () => choose({ process: Number(process.value), zoom: -1 }));

  for (const { id, name } of METRICS) {
    const radio = element("input", { type: "radio", name: "metric", value: id });
    radio.checked = id === state.metric;
    radio.addEventListener("change", () => choose({ metric: id }));
    byId("metric").append(element("label", {}, radio, name));
  }

  const query = byId("query");
  query.addEventListener("input", () => choose({ query: query.value }));
}

for (const part of document.querySelectorAll(".script")) part.hidden = false;
startControls();
startChart();
startFlame();
startTable();
