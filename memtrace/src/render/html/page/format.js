// Figures in words, as memtrace prints them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function size(bytes) {
  let value = Math.abs(bytes);
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 ? Math.round(value) : value.toFixed(1);
  return `${bytes < 0 ? "-" : ""}${digits} ${UNITS[unit]}`;
}

function signed(bytes) {
  return bytes < 0 ? size(bytes) : `+${size(bytes)}`;
}

function grouped(number) {
  return Math.round(number).toLocaleString("en-US");
}

function plural(number, noun) {
  return `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
}

function percent(share) {
  return `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

function seconds(time) {
  return `${time.toFixed(1)} s`;
}

// A new element with attributes and children; text is never markup.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

const byId = (id) => document.getElementById(id);

