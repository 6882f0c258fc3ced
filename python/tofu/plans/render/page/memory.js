// What a worker holds over a step, as a chart, and at its worst moment, as a table.

// A line at the very top of a chart would be cut.
const HEADROOM = 1.03;
// A limit above this multiple of the peak would make the chart flat, and is only named.
const FAR = 3;
// Kinds from below: what stays all the time first. The colours are those of the bar above.
const STACK = [0, 2, 1, 3, 4];

function memoryChart(peak, data) {
  const [width, height, left, bottom] = [960, 260, 84, 28];
  const total = (point) => point[2].reduce((sum, bytes) => sum + bytes, 0);
  const worst = peak.points.reduce((best, point, i) => (total(point) > total(peak.points[best]) ? i : best), 0);
  const highest = total(peak.points[worst]);
  const isFar = Boolean(data.limit) && data.limit > FAR * highest;
  const most = HEADROOM * Math.max(1, isFar ? 0 : data.limit || 0, highest);
  const x = (at) => left + ((width - left - 8) * at) / Math.max(1, peak.count - 1);
  const y = (bytes) => 8 + (height - bottom - 8) * (1 - bytes / most);
  const spot = (at, bytes) => `${x(at).toFixed(1)},${y(bytes).toFixed(1)}`;
  const kinds = STACK.filter((kind) => peak.points.some((point) => point[2][kind]));
  let below = peak.points.map(() => 0);
  const areas = kinds.map((kind) => {
    const above = peak.points.map((point, i) => below[i] + point[2][kind]);
    const line = (heights) => peak.points.map(([at], i) => spot(at, heights[i]));
    const path = `M${[...line(above), ...line(below).reverse()].join(" L")} Z`;
    below = above;
    return draw("path", { d: path, class: `kind${kind}` }, draw("title", {}, peak.kinds[kind]));
  });
  const ticks = roundBytes(most).map((bytes) => draw("g", {},
    draw("line", { x1: left, x2: width - 8, y1: y(bytes), y2: y(bytes), class: "grid" }),
    draw("text", { x: left - 8, y: y(bytes) + 4, class: "tick" }, formatBytes(bytes))));
  const limit = data.limit && !isFar ? draw("g", {},
    draw("line", { x1: left, x2: width - 8, y1: y(data.limit), y2: y(data.limit), class: "limit" }),
    draw("text", { x: width - 12, y: y(data.limit) + 14, class: "end" }, "the limit")) : null;
  const marker = draw("line", { y1: 8, y2: height - bottom, class: "marker" });
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img",
    "aria-label": "bytes held while each operator runs" },
    ticks, areas, limit, marker,
    draw("text", { x: left, y: height - 6, class: "axis" }, "first operator of the step"),
    draw("text", { x: width - 8, y: height - 6, class: "axis end" }, "last"));
  const above = isFar ? [make("span", {}, `the limit, ${formatBytes(data.limit)}, lies above`)] : [];
  const counts = kinds.map(() => make("span", { class: "number" }));
  const legend = make("p", { class: "legend" }, kinds.map((kind, i) =>
    make("span", {}, make("i", { class: `kind${kind}` }), `${peak.kinds[kind]} `, counts[i])), above);
  const said = make("output", { class: "reading" });
  const slider = make("input", { type: "range", min: 0, max: peak.points.length - 1,
    "aria-label": "operator of the step" });
  const read = () => {
    const [at, name, held] = peak.points[Number(slider.value)];
    marker.setAttribute("x1", x(at));
    marker.setAttribute("x2", x(at));
    said.textContent = `operator ${(at + 1).toLocaleString("en")} of ` +
      `${peak.count.toLocaleString("en")}, ${labelOf(data, name)}: ${formatBytes(total(peak.points[slider.value]))}`;
    kinds.forEach((kind, i) => { counts[i].textContent = formatBytes(held[kind]); });
  };
  slider.addEventListener("input", read);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    const share = (at - left) / (width - left - 8);
    slider.value = String(Math.round(share * (peak.points.length - 1)));
    read();
  });
  slider.value = String(worst);
  read();
  return make("div", {}, svg, slider, said, legend);
}

function memoryView(plan, data) {
  const { peak } = plan;
  const title = plan.name ? [make("h3", {}, plan.name)] : [];
  const kinds = plan.kinds.map(([kind, count]) =>
    make("tr", {}, make("td", {}, kind), make("td", { class: "number" }, formatBytes(count))));
  const total = plan.kinds.reduce((sum, [, count]) => sum + count, 0);
  const kindTable = plan.kinds.length
    ? [make("h3", {}, "The fullest worker"), make("table", { class: "small" }, kinds,
      make("tr", {}, make("th", {}, "in all"), make("th", { class: "number" }, formatBytes(total))))]
    : [make("p", { class: "note" }, "Memory is unknown: the file of a plan has none.")];
  if (!peak || !peak.points.length) return [...title, ...kindTable];
  const held = peak.held.map(([name, count, kind, bytes]) => make("tr", {},
    make("td", {}, name), make("td", {}, count > 1 ? `× ${count}` : ""),
    make("td", {}, kind === "tensor" ? "" : kind),
    make("td", { class: "number" }, formatBytes(bytes))));
  const heads = ["alive then, written by or fetched for", "", "", "bytes"];
  return [...title, ...kindTable,
    make("h3", {}, `Worker ${peak.worker} over a step`),
    make("p", { class: "note" }, "What is alive while each operator runs. ",
      `${formatBytes(peak.fixed)} stay all the time`,
      peak.allocated ? `; for the rest MXNet allocates ${formatBytes(peak.allocated)}` : "",
      ". Move the slider or the pointer."),
    memoryChart(peak, data),
    make("h3", {}, "At the worst moment"),
    make("p", { class: "note" }, "The peak: what is alive while the worker holds most. Only what stands here, ",
      "or stays all the time, decides whether the plan fits."),
    make("div", { class: "wide" }, make("table", { class: "small held" },
      make("thead", {}, make("tr", {}, heads.map((head, i) =>
        make("th", { scope: "col", class: i === 3 ? "number" : null }, head)))),
      make("tbody", {}, held)))];
}
