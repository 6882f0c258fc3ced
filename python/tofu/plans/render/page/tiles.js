// The tiles of a tensor, drawn as a grid; picture.py says which worker owns which.

const STRIPES = 8;

/** The part of a tensor that a worker holds: "0:4, :". */
function pieceText(own, piece) {
  return piece
    .map((number, d) => {
      const [begin, end] = rangeOf(own, d, number);
      return own.pieces[d] === 1 ? ":" : `${begin}:${end}`;
    })
    .join(", ");
}

function workersText(workers) {
  return `worker${workers.length > 1 ? "s" : ""} ${workers.join(", ")}`;
}

/** An SVG of the tiles in the colours of their owners; null if there are too many to see. */
function drawTiles(own, colours) {
  const { grid: [rows, columns, planes], cells, pieces } = own.picture;
  if (!cells || !pieces) return null;
  const [width, height, gap] = [320, 200, 10];
  const across = (width - gap * (planes - 1)) / (planes * columns);
  const down = height / rows;
  const hasText = across > 26 && down > 16;
  const shapes = cells.map(([row, column, workers]) => {
    const [x, y] = [column * across + gap * Math.floor(column / columns), row * down];
    const shown = workers.slice(0, STRIPES);
    const title = `${workersText(workers)}: [${pieceText(own, pieces[workers[0]])}]`;
    const label = workers.length > 3 ? `${workers.length} copies` : workers.join(" ");
    return draw("g", { class: "tile" }, draw("title", {}, title),
      shown.map((worker, i) => draw("rect", { x, y: y + (i * down) / shown.length, width: across,
        height: down / shown.length, fill: colours[worker] })),
      draw("rect", { x, y, width: across, height: down, class: "edge" }),
      hasText && label.length * 7 < across
        ? draw("text", { x: x + across / 2, y: y + down / 2, class: "owner" }, label)
        : null);
  });
  return draw("svg", { class: "tiles", viewBox: `-1 -1 ${width + 2} ${height + 2}`, role: "img",
    "aria-label": `${cells.length} tiles` }, shapes);
}

/** Which dimensions the drawing shows. */
function axesText(own) {
  const { grid: [, , planes], axes } = own.picture;
  const words = [];
  if (axes.length) words.push(`dimension ${axes[0]} runs down`);
  if (axes.length > 1) words.push(`dimension ${axes[1]} to the right`);
  if (planes > 1) words.push("other dimensions side by side");
  return words.join(", ");
}
