// What a worker holds over a step, as a chart, and at its worst moment, as a table.

function memoryChart(peak, data) {
  const [width, height, left, bottom] = [960, 260, 84, 28];
  const most = Math.max(1, data.limit || 0, peak.fixed + Math.max(0, ...peak.points.map((point) => point[1])));
  const x = (at) => left + ((width - left - 8) * at) / Math.max(1, peak.count - 1);
  const y = (bytes) => 8 + (height - bottom - 8) * (1 - bytes / most);
  const line = peak.points.map(([at, bytes]) => `${x(at).toFixed(1)},${y(peak.fixed + bytes).toFixed(1)}`);
  const area = `M${x(0)},${y(0)} L${line.join(" L")} L${x(peak.count - 1)},${y(0)} Z`;
  const ticks = roundBytes(most).map((bytes) => draw("g", {},
    draw("line", { x1: left, x2: width - 8, y1: y(bytes), y2: y(bytes), class: "grid" }),
    draw("text", { x: left - 8, y: y(bytes) + 4, class: "tick" }, formatBytes(bytes))));
  const limit = data.limit ? draw("g", {},
    draw("line", { x1: left, x2: width - 8, y1: y(data.limit), y2: y(data.limit), class: "limit" }),
    draw("text", { x: width - 12, y: y(data.limit) + 14, class: "end" }, "the limit")) : null;
  const marker = draw("line", { y1: 8, y2: height - bottom, class: "marker" });
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img",
    "aria-label": "bytes held while each operator runs" },
    ticks, draw("path", { d: area, class: "area" }),
    draw("rect", { x: left, y: y(peak.fixed), width: width - left - 8,
      height: y(0) - y(peak.fixed), class: "fixed" }), limit, marker,
    draw("text", { x: left, y: height - 6, class: "axis" }, "first operator of the step"),
    draw("text", { x: width - 8, y: height - 6, class: "axis end" }, "last"));
  const said = make("output", { class: "reading" });
  const slider = make("input", { type: "range", min: 0, max: peak.points.length - 1,
    "aria-label": "operator of the step" });
  const read = () => {
    const [at, bytes, name] = peak.points[Number(slider.value)];
    marker.setAttribute("x1", x(at));
    marker.setAttribute("x2", x(at));
    said.textContent = `operator ${(at + 1).toLocaleString("en")} of ` +
      `${peak.count.toLocaleString("en")}, ${labelOf(data, name)}: ${formatBytes(peak.fixed + bytes)}`;
  };
  slider.addEventListener("input", read);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    const share = (at - left) / (width - left - 8);
    slider.value = String(Math.round(share * (peak.points.length - 1)));
    read();
  });
  const worst = peak.points.reduce((best, point, i) =>
    (point[1] > peak.points[best][1] ? i : best), 0);
  slider.value = String(worst);
  read();
  return make("div", {}, svg, slider, said);
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
    make("p", { class: "note" }, "Below the line are parameters, states and inputs ",
      `(${formatBytes(peak.fixed)}), above it tensors between operators`,
      peak.allocated ? `, for which MXNet allocates ${formatBytes(peak.allocated)}` : "",
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
