// Makes elements. Names of a user's net are only ever text of an element or of an attribute.

// The namespace of SVG; the page contains no address.
const SVG = byId("svg").namespaceURI;

function fill(element, properties, children) {
  for (const [key, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") {
      for (const [event, action] of Object.entries(value)) element.addEventListener(event, action);
    } else if (key === "style") {
      for (const [name, setting] of Object.entries(value)) element.style.setProperty(name, setting);
    } else {
      element.setAttribute(key, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** An HTML element: make("td", {class: "number"}, "3"). */
function make(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An SVG element. */
function draw(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function byId(id) {
  return document.getElementById(id);
}

/** A button that looks like a link and opens the details of a tensor or an operator. */
function linkTo(item, open) {
  return make("button", { class: "link", type: "button", on: { click: () => open(item) } },
    item.label);
}

/** A bar, as long and as strong in colour as its share. */
function bar(share) {
  return make("span", { class: "bar", "aria-hidden": "true",
    style: { "--share": String(Math.max(0, Math.min(1, share))) } });
}
