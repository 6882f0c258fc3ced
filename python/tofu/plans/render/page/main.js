// Puts the page together: search, views, details of one tensor or operator, and pins.

/** A word as a POSIX shell reads it. */
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;
}

/** The bytes that a cut of one step would add to the plan's; null where that is unknown. */
function priceOf(tensor, step, dimension) {
  const found = tensor.prices && tensor.prices[step].find(([cut]) => cut === dimension);
  return found ? found[1] : null;
}

function priceText(tensor, step, dimension) {
  const price = priceOf(tensor, step, dimension);
  const isChosen = dimension === tensor.of[tensor.of.length - 1].cuts[step];
  return price === null || isChosen ? "" : ` (${formatChange(price) || "no change"})`;
}

/** What a pin of all steps would cost: known if it changes one step, else about the sum. */
function pinPrice(tensor, cuts) {
  const { cuts: chosen } = tensor.of[tensor.of.length - 1];
  const changed = cuts.map((cut, step) => [step, cut]).filter(([step, cut]) => cut !== chosen[step]);
  const prices = changed.map(([step, cut]) => priceOf(tensor, step, cut));
  if (!changed.length || prices.includes(null)) return "";
  const sum = prices.reduce((total, price) => total + price, 0);
  return `costs ${changed.length > 1 ? "about " : ""}${formatChange(sum) || "nothing"}`;
}

class Page {
  constructor(data) {
    this.data = data;
    this.plans = data.plans.length;
    this.tensors = readTensors(data);
    this.operators = readOperators(data, this.tensors);
    this.layers = readLayers(data, this.tensors, this.operators);
    this.pins = new Map();
    this.openedRepeats = new Set(); // of the graph, by the name of their first block
    this.fitting = new Set();
    this.fits = (item) => this.fitting.has(item);
    this.open = (item) => this.showDetails(item);
    this.last = this.plans - 1;
    this.makeColumns();
    this.tables = [
      new Table("tensors", this.tensorColumns, { items: this.tensors, fits: this.fits, open: this.open }),
      new Table("operators", this.operatorColumns,
        { items: this.operators, fits: this.fits, open: this.open }),
    ];
    this.tree = new Tree(this);
    byId("memory").replaceChildren(...data.plans.flatMap((plan) => memoryView(plan, data)));
    this.listen();
    this.search();
    this.showPins();
  }

  metric() {
    return byId("metric").value;
  }

  names() {
    return this.data.plans.map((plan) => plan.name);
  }

  /** A column for each plan, and in a comparison their change. */
  perPlan(title, count) {
    if (this.plans === 1) return [{ title, of: (item) => count(item.of[0], item), isChange: false }];
    const columns = this.names().map((name, plan) => (
      { title: `${title}: ${name}`, of: (item) => count(item.of[plan], item), isChange: false }));
    const change = (item) => count(item.of[1], item) - count(item.of[0], item);
    return [...columns, { title: "change", of: change, isChange: true }];
  }

  makeColumns() {
    const numbers = (title, count) => this.perPlan(title, count).map((column) => ({
      title: column.title,
      isNumber: true,
      value: (item) => (column.isChange ? Math.abs(column.of(item)) : column.of(item)),
      text: (item) => (column.isChange ? formatChange : formatBytes)(column.of(item)),
    }));
    const texts = (title, text) => this.names().map((name) => ({
      title: name ? `${title}: ${name}` : title,
      name,
    })).map(({ title: full }, plan) => ({
      title: full,
      value: (item) => (item.of[plan] ? text(item.of[plan]) : "(none)"),
    }));
    this.tensorColumns = [
      { title: "tensor", value: (item) => item.label },
      ...texts("shape", (own) => shapeText(own.shape)).slice(0, 1),
      { title: "dtype", value: (item) => item.dtype, isMinor: true },
      ...texts("tiles", tilesText).map((column) => ({ ...column, isMinor: true })),
      ...texts("cut per step", (own) => cutsText(own.cuts)),
      ...numbers("tiles on a worker", (own) => (own ? own.tileBytes : 0)),
      ...numbers("bytes", (own) => (own ? own.bytes : 0)).slice(0, 1),
    ];
    this.operatorColumns = [
      { title: "operator", value: (item) => item.label },
      { title: "kind", value: (item) => item.kind },
      { title: "direction", value: (item) => item.direction },
      ...texts("split per step", (own) => splitText(own.split)),
      ...numbers("bytes fetched", (own) => (own ? own.bytes : 0)),
    ];
  }

  /** The numbers of the tree: by kind of bytes, or in a comparison by plan. */
  makeTreeColumns() {
    const titles = { fetched: "fetched", held: "tiles on a worker" };
    const ofItem = (item, own, key) => {
      if (!own) return 0;
      if (key === "fetched" || key === item.direction) return own.split ? own.bytes : 0;
      return key === "held" && own.cuts ? own.tileBytes : 0;
    };
    const keys = this.plans === 1
      ? ["forward", "backward", "update", "fetched", "held", "parameters"] : [this.metric()];
    this.treeColumns = keys.flatMap((key) => {
      const title = titles[key] || key;
      const columns = this.perPlan(title, (own) => (own ? own[key] : 0));
      const items = this.perPlan(title, (own, item) => ofItem(item, own, key));
      return columns.map((column, i) => {
        const format = column.isChange ? formatChange : formatBytes;
        return {
          title: column.title,
          text: (block) => format(column.of(block)),
          item: (item) => (items[i].of(item) === 0 ? "" : format(items[i].of(item))),
        };
      });
    });
    byId("tree-head").replaceChildren(make("span", { class: "name" }, "layer"),
      make("span", { class: "scale", "aria-hidden": "true" }),
      ...this.treeColumns.map((column) => make("span", { class: "number" }, column.title)));
    byId("layers").style.setProperty("--numbers", String(this.treeColumns.length));
  }

  listen() {
    byId("search").addEventListener("input", () => this.search());
    byId("metric").addEventListener("change", () => this.show());
    byId("tree-order").addEventListener("change", () => this.tree.show());
    byId("different").addEventListener("change", () => this.search());
    byId("different-box").hidden = this.plans === 1;
    byId("unfold").addEventListener("click", () => this.tree.unfoldAll(true));
    byId("fold").addEventListener("click", () => this.tree.unfoldAll(false));
    byId("close").addEventListener("click", () => this.closeDetails());
    byId("copy").addEventListener("click", () => this.copy());
    document.addEventListener("keydown", (event) => {
      const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
      if (event.key === "/" && !isTyping) {
        byId("search").focus();
        event.preventDefault();
      }
      if (event.key === "Escape") this.closeDetails();
    });
    const tabs = [...document.querySelectorAll("[role=tab]")];
    tabs.forEach((tab, at) => {
      tab.addEventListener("click", () => this.choose(tab));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (step) this.choose(tabs[(at + step + tabs.length) % tabs.length], true);
      });
    });
  }

  choose(tab, hasFocus = false) {
    for (const other of document.querySelectorAll("[role=tab]")) {
      const isChosen = other === tab;
      other.setAttribute("aria-selected", String(isChosen));
      other.tabIndex = isChosen ? 0 : -1;
      byId(other.getAttribute("aria-controls")).hidden = !isChosen;
    }
    if (hasFocus) tab.focus();
  }

  search() {
    const fits = matcher(byId("search").value);
    const onlyDifferent = byId("different").checked;
    const words = (item) => (item.what === "operator"
      ? [item.name, item.label, item.kind, item.direction, this.data.layers[item.layer]]
      : [item.name, item.label, item.dtype, item.isParameter ? "parameter" : "",
        this.data.layers[item.layer]]);
    this.fitting = new Set([...this.tensors, ...this.operators].filter((item) =>
      (!onlyDifferent || differs(item)) && fits(...words(item))));
    const count = this.fitting.size;
    byId("found").textContent = byId("search").value || onlyDifferent
      ? `${count.toLocaleString("en")} found` : "";
    this.show();
  }

  show() {
    this.makeTreeColumns();
    this.tree.show();
    for (const table of this.tables) table.show();
  }

  showGraph() {
    byId("graph").replaceChildren(...graphView(this));
  }

  // --- details -------------------------------------------------------------------------------

  closeDetails() {
    byId("details").hidden = true;
    document.body.classList.remove("has-details");
    if (this.before && this.before.isConnected) this.before.focus();
  }

  showDetails(item) {
    if (!byId("details").contains(document.activeElement)) this.before = document.activeElement;
    const parts = item.what === "tensor" ? this.tensorDetails(item) : this.operatorDetails(item);
    byId("details-title").textContent = item.label;
    byId("details-body").replaceChildren(...parts.filter((part) => part !== null));
    byId("details").hidden = false;
    document.body.classList.add("has-details");
    byId("details").scrollTop = 0;
    byId("details-title").focus();
  }

  /** Part of the details once for each plan, under its name if there are two. */
  forPlans(item, part) {
    return this.data.plans.flatMap((plan, number) => {
      const title = plan.name ? [make("h3", {}, plan.name)] : [];
      if (!item.of[number]) return [...title, make("p", { class: "note" }, "not in this plan")];
      return [...title, ...part(item.of[number], plan)];
    });
  }

  facts(...pairs) {
    return make("dl", {}, pairs.map(([term, value]) => [make("dt", {}, term), make("dd", {}, value)]));
  }

  tensorDetails(tensor) {
    const tiles = this.forPlans(tensor, (own) => {
      const drawing = drawTiles(own, this.data.colours);
      return [
        this.facts(["shape", `${shapeText(own.shape)} ${tensor.dtype}`],
          ["bytes", `${formatBytes(own.bytes)}, ${formatBytes(own.tileBytes)} on a worker`],
          ["tiles", tilesText(own)], ["cut per step", cutsText(own.cuts)]),
        drawing || make("p", { class: "note" }, "more tiles than can be seen"),
        make("p", { class: "note" }, axesText(own)),
        this.owners(own),
      ];
    });
    return [
      make("p", { class: "note" }, this.data.layers[tensor.layer], tensor.isParameter ? ", parameter" : ""),
      ...tiles, this.pinForm(tensor),
      ...this.links("written by", tensor.writer ? [tensor.writer] : []),
      ...this.links("read by", tensor.readers),
    ];
  }

  owners(own) {
    if (!own.picture.pieces) return null;
    const rows = own.picture.pieces.map((piece, worker) =>
      make("tr", {},
        make("td", {}, make("span", { class: "swatch",
          style: { background: this.data.colours[worker] } }), `worker ${worker}`),
        make("td", { class: "code" }, `[${pieceText(own, piece)}]`)));
    return make("details", {}, make("summary", {}, "what each worker holds"),
      make("table", { class: "small" }, rows));
  }

  operatorDetails(operator) {
    return [
      make("p", { class: "note" },
        `${operator.kind}, ${operator.direction}, layer ${this.data.layers[operator.layer]}`),
      ...this.forPlans(operator, (own) => [
        this.facts(["split per step", splitText(own.split)], ["fetches", formatBytes(own.bytes)])]),
      ...this.links("reads", operator.reads || []),
      ...this.links("writes", operator.writes),
    ];
  }

  links(title, items) {
    if (!items.length) return [];
    return [make("h3", {}, title),
      make("ul", { class: "links" }, items.map((item) => make("li", {}, linkTo(item, this.open))))];
  }

  // --- pins ----------------------------------------------------------------------------------

  /** A choice per step, and a button that adds the pin. */
  pinForm(tensor) {
    const own = tensor.of[this.last];
    if (!own) return null;
    const { parts } = this.data.plans[this.last];
    const choices = parts.map((count, step) => {
      const options = [...own.shape.keys(), REPLICATED].map((dimension) =>
        make("option", { value: dimension, selected: dimension === own.cuts[step] },
          (dimension === REPLICATED ? "whole" : `dimension ${dimension}`) +
            priceText(tensor, step, dimension)));
      return make("select", { "aria-label": `step ${step + 1}, in ${count} parts` }, options);
    });
    const why = make("span", { class: "note", role: "status" });
    const add = make("button", { type: "button", on: { click: () => {
      const cuts = choices.map((choice) => Number(choice.value));
      const isUniform = cuts.every((cut) => cut === cuts[0]);
      this.pins.set(tensor.name, isUniform ? String(cuts[0]) : cuts.join(","));
      this.showPins();
    } } }, "pin");
    const check = () => {
      const left = own.shape.slice();
      const wrong = choices.findIndex((choice, step) => {
        const cut = Number(choice.value);
        if (cut === REPLICATED) return false;
        if (left[cut] < parts[step]) return true;
        left[cut] = Math.floor(left[cut] / parts[step]);
        return false;
      });
      add.disabled = wrong >= 0;
      why.textContent = wrong < 0 ? pinPrice(tensor, choices.map((choice) => Number(choice.value)))
        : `step ${wrong + 1}: that dimension has fewer elements left than ${parts[wrong]} parts`;
    };
    for (const choice of choices) choice.addEventListener("change", check);
    check();
    return make("fieldset", { class: "pin" }, make("legend", {}, "pin how it is cut, step by step"),
      choices, add, why, make("p", { class: "note" }, tensor.prices
        ? "In brackets: what a training step communicates more if only this cut changes."
        : "tofu plan --explain tells what each cut costs, and --prices shows it here."));
  }

  command() {
    const pins = [...this.pins].flatMap(([name, cuts]) => ["--pin", quoted(`${name}=${cuts}`)]);
    return [this.data.command[0], ...pins, this.data.command[1]].join(" ");
  }

  showPins() {
    byId("pins").hidden = this.pins.size === 0;
    byId("command").textContent = this.command();
    byId("copied").textContent = "";
    byId("pin-list").replaceChildren(...[...this.pins].map(([name, cuts]) => make("li", {},
      `${name}=${cuts} `,
      make("button", { type: "button", "aria-label": `remove the pin of ${name}`, on: { click: () => {
        this.pins.delete(name);
        this.showPins();
      } } }, "×"))));
  }

  /** Copies the command; a page that was opened as a file may only be allowed to select it. */
  async copy() {
    try {
      await navigator.clipboard.writeText(this.command());
      byId("copied").textContent = "copied";
    } catch {
      getSelection().selectAllChildren(byId("command"));
      byId("copied").textContent = "selected: copy it with Ctrl+C";
    }
  }
}

window.page = new Page(JSON.parse(byId("data").textContent));
