// Reads the page's document (page_data.py): rows of tensors, operators and layers.

const KIB = 1024;
const REPLICATED = -1;
const TERMS = -3;

/** `count` bytes in the largest binary unit that keeps it at 1 or more. */
function formatBytes(count) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let size = Math.abs(count);
  while (size >= KIB && unit < units.length - 1) {
    size /= KIB;
    unit += 1;
  }
  const sign = count < 0 ? "-" : "";
  const digits = unit === 0 ? 0 : 1;
  const text = size.toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
  return `${sign}${text} ${units[unit]}`;
}

/** Round numbers of bytes from 0 to `most`, five or so. */
function roundBytes(most) {
  let unit = 1;
  while (most / unit >= KIB) unit *= KIB;
  const rough = most / unit / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(unit === 1 ? 1 : 0, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough)) * unit;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

/** A change of bytes, with its sign; empty for none. */
function formatChange(count) {
  if (count === 0) return "";
  return count > 0 ? `+${formatBytes(count)}` : formatBytes(count);
}

/** The number of pieces of a tensor along each dimension. */
function tilesOf(shape, cuts, parts) {
  const pieces = shape.map(() => 1);
  cuts.forEach((cut, step) => {
    if (cut >= 0) pieces[cut] *= parts[step];
  });
  return pieces;
}

/** The range of indices of a piece along a dimension: [begin, end). */
function rangeOf(own, dimension, piece) {
  const extent = own.shape[dimension];
  const begins = own.begins && own.begins[dimension];
  if (begins) return [begins[piece], piece + 1 < begins.length ? begins[piece + 1] : extent];
  const size = extent / own.pieces[dimension];
  return [piece * size, (piece + 1) * size];
}

/** The sizes of a dimension's pieces, largest first. */
function sizesOf(own, dimension) {
  const sizes = new Set();
  for (let piece = 0; piece < own.pieces[dimension]; piece += 1) {
    const [begin, end] = rangeOf(own, dimension, piece);
    sizes.add(end - begin);
  }
  return [...sizes].sort((a, b) => b - a);
}

/** The number of pieces along each dimension, and the sizes of those that are not equal. */
function tilesText(own) {
  const unequal = own.shape.flatMap((extent, d) => {
    const sizes = sizesOf(own, d).map((size) => size.toLocaleString("en"));
    if (sizes.length === 1) return [];
    const last = sizes.pop();
    return [`${sizes.join(", ")} or ${last} of ${extent.toLocaleString("en")}`];
  });
  return own.pieces.join(" × ") + (own.cuts.includes(REPLICATED) ? " =" : "") +
    (unequal.length ? ` (${unequal.join("; ")})` : "");
}

/** The bytes of a tensor's largest tile. */
function tileBytes(own, elementBytes) {
  return own.shape.reduce((bytes, extent, d) => bytes * sizesOf(own, d)[0], elementBytes);
}

/** A name as people read it, by its number. */
function labelOf(data, name) {
  return data.labels[name] || data.names[name];
}

/** The rows of tensors; `of[i]` is what plan i does with it, null if it has no such tensor. */
function readTensors(data) {
  const table = data.tensors;
  return table.name.map((name, row) => {
    const [dtype, elementBytes] = table.dtypes[table.dtype[row]];
    const output = table.output[row];
    const of = data.plans.map((plan, number) => {
      if (table.shape[number][row] < 0) return null;
      const shape = table.shapes[table.shape[number][row]];
      const cuts = table.cutsOf[table.cuts[number][row]];
      const own = {
        shape,
        cuts,
        picture: table.pictures[table.picture[number][row]],
        pieces: tilesOf(shape, cuts, plan.parts),
        begins: plan.begins[`${table.shape[number][row]}:${table.cuts[number][row]}`],
        bytes: shape.reduce((size, extent) => size * extent, elementBytes),
      };
      return { ...own, tileBytes: tileBytes(own, elementBytes) };
    });
    return {
      row,
      what: "tensor",
      name: output ? `${data.names[name]}[${output}]` : data.names[name],
      label: output ? `${labelOf(data, name)}[${output}]` : labelOf(data, name),
      node: data.names[name],
      dtype,
      layer: table.layer[row],
      isParameter: Boolean(table.parameter[row]),
      prices: table.prices[row] || null,
      of,
      readers: [],
      writer: null,
    };
  });
}

/** The rows of operators, joined to the tensors that they read and write. */
function readOperators(data, tensors) {
  const table = data.operators;
  const outputs = new Map();
  for (const tensor of tensors) {
    if (!outputs.has(tensor.node)) outputs.set(tensor.node, []);
    outputs.get(tensor.node).push(tensor);
  }
  return table.name.map((name, row) => {
    const operator = {
      row,
      what: "operator",
      name: data.names[name],
      label: labelOf(data, name),
      kind: table.kinds[table.kind[row]],
      layer: table.layer[row],
      direction: data.directions[table.direction[row]],
      of: data.plans.map((plan, number) => {
        const split = table.split[number][row];
        if (split < 0) return null;
        return { split: table.splits[split], bytes: table.bytes[number][row] };
      }),
      reads: table.reads ? table.reads[row].map((tensor) => tensors[tensor]) : null,
      writes: outputs.get(data.names[name]) || [],
    };
    for (const tensor of operator.writes) tensor.writer = operator;
    for (const tensor of new Set(operator.reads || [])) tensor.readers.push(operator);
    return operator;
  });
}

/** The sums of a layer before anything is added: bytes fetched, in all and by direction, and held. */
function noBytes() {
  return { fetched: 0, forward: 0, backward: 0, update: 0, held: 0, parameters: 0 };
}

/** Layers with their sums; of[i]: those of plan i. */
function readLayers(data, tensors, operators) {
  const layers = data.layers.map((name) => ({
    name,
    tensors: [],
    operators: [],
    of: data.plans.map(() => noBytes()),
  }));
  for (const tensor of tensors) {
    layers[tensor.layer].tensors.push(tensor);
    tensor.of.forEach((own, plan) => {
      if (!own) return;
      layers[tensor.layer].of[plan].held += own.tileBytes;
      if (tensor.isParameter) layers[tensor.layer].of[plan].parameters += own.bytes;
    });
  }
  for (const operator of operators) {
    layers[operator.layer].operators.push(operator);
    operator.of.forEach((own, plan) => {
      if (!own) return;
      layers[operator.layer].of[plan].fetched += own.bytes;
      layers[operator.layer].of[plan][operator.direction] += own.bytes;
    });
  }
  return layers;
}

/** "0 1 -": the dimension that each step cuts, or that its workers hold terms of a sum. */
function cutsText(cuts) {
  const names = { [REPLICATED]: "-", [TERMS]: "terms" };
  return cuts.map((cut) => names[cut] ?? String(cut)).join(" ");
}

function splitText(split) {
  return split.map((variable) => variable || "-").join(" ");
}

function shapeText(shape) {
  return shape.join(" × ") || "scalar";
}

/** Whether two plans treat a tensor or an operator differently. */
function differs(item) {
  if (item.of.length < 2) return false;
  return JSON.stringify(item.of[0]) !== JSON.stringify(item.of[1]);
}

/** A function that tells whether a name, or a kind, fits what was typed: words, or a pattern. */
function matcher(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const tests = words.map((word) => {
    if (!/[*?]/.test(word)) return (name) => name.includes(word);
    const escaped = word.replace(/[.+^${}()|[\]\\]/g, "\\$&");
    const pattern = new RegExp(`^${escaped.replace(/\*/g, ".*").replace(/\?/g, ".")}$`);
    return (name) => name.split("\n").some((part) => pattern.test(part));
  });
  return (...names) => {
    const all = names.join("\n").toLowerCase();
    return tests.every((test) => test(all));
  };
}
