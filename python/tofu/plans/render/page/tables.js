// Tables of tensors and operators: sorted by any column, some rows at a time.

const ROWS = 200;

function kindOf(column) {
  const kinds = [column.isNumber && "number", column.isMinor && "minor"].filter(Boolean);
  return kinds.join(" ") || null;
}

class Table {
  /**
   * columns: {title, value(item), text(item) or null, isNumber, isMinor}; value sorts, text is
   * shown; a minor column gives way to the details of an item where there is not room for both.
   * options: items, fits(item), open(item).
   */
  constructor(id, columns, options) {
    this.id = id;
    this.columns = columns;
    this.options = options;
    this.sortedBy = null;
    this.isDescending = true;
    this.shown = ROWS;
    this.root = byId(id);
    this.more = make("button", { type: "button", class: "more", on: { click: () => {
      this.shown += 5 * ROWS;
      this.show();
    } } });
  }

  sortBy(column) {
    const isSame = this.sortedBy === column;
    this.isDescending = isSame ? !this.isDescending : Boolean(column.isNumber);
    this.sortedBy = column;
    this.show();
    this.root.querySelectorAll("th button")[this.columns.indexOf(column)].focus();
  }

  rows() {
    const rows = this.options.items.filter(this.options.fits);
    const column = this.sortedBy;
    if (!column) return rows;
    const sign = this.isDescending ? -1 : 1;
    const compare = (a, b) => {
      const [one, other] = [column.value(a), column.value(b)];
      if (typeof one === "number") return one - other;
      return String(one).localeCompare(String(other), "en", { numeric: true });
    };
    return rows.sort((a, b) => sign * compare(a, b) || a.row - b.row);
  }

  show() {
    const rows = this.rows();
    const head = make("tr", {}, this.columns.map((column) => {
      const isSorted = this.sortedBy === column;
      const order = this.isDescending ? "descending" : "ascending";
      return make("th", { scope: "col", class: kindOf(column),
        "aria-sort": isSorted ? order : null },
        make("button", { type: "button", on: { click: () => this.sortBy(column) } }, column.title));
    }));
    const body = rows.slice(0, this.shown).map((item) => make("tr", {},
      this.columns.map((column, i) => {
        const text = (column.text || column.value)(item);
        return make("td", { class: kindOf(column) },
          i === 0 ? linkTo(item, this.options.open) : text);
      })));
    const rest = rows.length - this.shown;
    this.more.textContent = `show more (${Math.max(rest, 0).toLocaleString("en")} left)`;
    this.more.hidden = rest <= 0;
    const count = make("p", { class: "note", role: "status" },
      `${rows.length.toLocaleString("en")} of ${this.options.items.length.toLocaleString("en")}`);
    this.root.replaceChildren(count,
      make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `table of ${this.id}` },
        make("table", {}, make("thead", {}, head), make("tbody", {}, body))), this.more);
  }
}
