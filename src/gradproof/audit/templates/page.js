"use strict";
// rows: [name, outcome, reason, seconds, tags, finished], the middle ones as positions in lists of distinct texts
const data = JSON.parse(document.getElementById("data").textContent);
const { rows, outcomes, reasons, tags, details } = data;
const HEIGHT = 26, SPARE = 12, BINS = 120, GROUPS = 40;
const find = (id) => document.getElementById(id);
const table = find("table"), shownRows = find("window");
const state = { outcomes: new Set(), words: [], reason: -1, slowest: false, group: "" };
let visible = [], selected = -1, searched = null;

const make = (kind, text, attributes = {}) => {
  const made = document.createElement(kind);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};

const tagTexts = tags.map((each) => each.join(" ").toLowerCase());
const texts = () => searched ??= rows.map((row, index) =>
  `${row[0]} ${reasons[row[2]]} ${(details[index] || [""])[0]}`.toLowerCase());

function fits(index) {
  const row = rows[index];
  if (state.outcomes.size && !state.outcomes.has(row[1])) return false;
  if (state.reason >= 0 && row[2] !== state.reason) return false;
  return state.words.every((word) => texts()[index].includes(word) || tagTexts[row[4]].includes(word));
}

function filter() {
  visible = [];
  for (let index = 0; index < rows.length; index++) if (fits(index)) visible.push(index);
  if (state.slowest) visible.sort((a, b) => rows[b][3] - rows[a][3]);
  find("shown").value = `${visible.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} cases`;
  find("space").style.height = `${visible.length * HEIGHT}px`;
  table.scrollTop = 0;
  draw();
  drawGroups();
}

function draw() {
  const first = Math.max(0, Math.floor(table.scrollTop / HEIGHT) - SPARE);
  const last = Math.min(visible.length, Math.ceil((table.scrollTop + table.clientHeight) / HEIGHT) + SPARE);
  const drawn = [];
  for (let place = first; place < last; place++) {
    const [name, outcome, reason, seconds] = rows[visible[place]];
    const row = make("div", "", { role: "row", class: "row", style: "", "aria-selected": visible[place] === selected });
    row.style.top = `${place * HEIGHT}px`;
    row.dataset.index = visible[place];
    row.append(make("span", outcomes[outcome], { class: outcomes[outcome], role: "cell" }), make("span", name, { role: "cell", title: name }),
      make("span", reasons[reason], { role: "cell" }), make("span", seconds.toFixed(2), { role: "cell" }));
    drawn.push(row);
  }
  shownRows.replaceChildren(...drawn);
}

function show(index) {
  selected = index;
  const [name, outcome, reason, seconds, labels] = rows[index];
  const [message = "", report = "", printed = ""] = details[index] || [];
  const parts = [make("h2", name), make("p", `${outcomes[outcome]} ${reasons[reason]}, ${seconds.toFixed(2)} s. ${tags[labels].join(", ")}`)];
  for (const [title, text] of [["", report || message], ["Printed", printed], ["Run it again", `gradproof audit replay ${data.journal} '${name.replaceAll("'", "'\\''")}'`]]) {
    if (!text) continue;
    if (title) parts.push(make("strong", title));
    parts.push(make("pre", text));
  }
  find("detail").replaceChildren(...parts);
  draw();
}

function drawGroups() {
  const key = state.group;
  if (!key) return find("groups").replaceChildren();
  const counts = new Map();
  for (const index of visible) {
    const row = rows[index];
    const name = key === "reason" ? reasons[row[2]] : (tags[row[4]].find((each) => each.startsWith(`${key}=`)) || "");
    counts.set(name, (counts.get(name) || 0) + 1);
  }
  const largest = [...counts].sort((a, b) => b[1] - a[1]).slice(0, GROUPS);
  find("groups").replaceChildren(...largest.map(([name, count]) => {
    const button = make("button", `${name || "none"} · ${count.toLocaleString("en")}`);
    button.onclick = () => { find("search").value = name; search(name); };
    return button;
  }));
}

function search(text) {
  state.words = text.toLowerCase().split(/\s+/).filter(Boolean);
  filter();
}

const duration = (seconds) =>
  seconds < 120 ? `${seconds.toFixed(0)} s` : seconds < 7200 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;

function drawTimeline() {
  if (!rows.length) return;
  let begin = Infinity, end = -Infinity;
  for (const row of rows) { begin = Math.min(begin, row[5]); end = Math.max(end, row[5]); }
  const bins = new Array(BINS).fill(0), width = (end - begin) / BINS || 1;
  for (const row of rows) bins[Math.min(BINS - 1, Math.floor((row[5] - begin) / width))] += row[3];
  const most = Math.max(...bins) || 1, space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", `0 0 ${BINS} 100`);
  picture.setAttribute("preserveAspectRatio", "none");
  bins.forEach((seconds, place) => {
    const bar = document.createElementNS(space, "rect"), height = 100 * seconds / most;
    for (const [name, value] of Object.entries({ x: place, y: 100 - height, width: .8, height })) bar.setAttribute(name, value);
    picture.append(bar);
  });
  find("timeline").replaceChildren(picture, make("p", `A bar is the seconds of the cases that ended in one of ${BINS} parts of ${duration(end - begin)}; the highest is ${most.toFixed(1)} s.`));
}

outcomes.forEach((name, place) => {
  const count = rows.reduce((sum, row) => sum + (row[1] === place), 0);
  const button = make("button", `${name} ${count.toLocaleString("en")}`, { class: name, "aria-pressed": "false" });
  button.onclick = () => {
    const on = !state.outcomes.delete(place);
    if (on) state.outcomes.add(place);
    button.setAttribute("aria-pressed", on);
    filter();
  };
  find("outcomes").append(button);
});
find("reason").append(make("option", "Every reason", { value: -1 }),
  ...reasons.map((text, place) => [text, place]).filter(([text]) => text).sort().map(([text, place]) => make("option", text, { value: place })));
const keys = new Set(tags.flat().filter((each) => each.includes("=")).map((each) => each.split("=")[0]));
find("group").append(make("option", "Group by nothing", { value: "" }), ...["reason", ...keys].map((key) => make("option", `Group by ${key}`, { value: key })));

let waiting = 0;
find("search").oninput = (event) => { clearTimeout(waiting); waiting = setTimeout(() => search(event.target.value), 80); };
find("reason").onchange = (event) => { state.reason = Number(event.target.value); filter(); };
find("group").onchange = (event) => { state.group = event.target.value; drawGroups(); };
find("slowest").onclick = (event) => {
  state.slowest = !state.slowest;
  event.target.setAttribute("aria-pressed", state.slowest);
  filter();
};
table.onscroll = () => requestAnimationFrame(draw);
table.onclick = (event) => {
  const row = event.target.closest(".row");
  if (row) show(Number(row.dataset.index));
};
table.onkeydown = (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || !visible.length) return;
  event.preventDefault();
  const place = Math.min(visible.length - 1, Math.max(0, visible.indexOf(selected) + step));
  const top = place * HEIGHT;
  if (top < table.scrollTop) table.scrollTop = top;
  if (top + HEIGHT > table.scrollTop + table.clientHeight) table.scrollTop = top + HEIGHT - table.clientHeight;
  show(visible[place]);
};
addEventListener("resize", draw);
drawTimeline();
filter();
