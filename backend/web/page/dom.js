// Elements, and figures with their units.

const svgNS = "http://www.w3.org/2000/svg";

function fill(e, attributes, children) {
	for (const [k, v] of Object.entries(attributes ?? {})) {
		if (v === undefined || v === null || v === false) continue;
		if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
		else if (k === "width%") e.style.width = v + "%";
		else if (k === "left%") e.style.left = v + "%";
		else e.setAttribute(k, v === true ? "" : v);
	}
	e.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
	return e;
}

// h returns an element of HTML, s one of SVG. Texts become text nodes, never markup.
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(svgNS, tag), attributes, children);

// put gives an element a text, if it has another one: unchanged text keeps selections and is not announced again.
export function put(e, text) {
	if (e.textContent !== text) e.textContent = text;
}

export function announce(text) {
	document.getElementById("announce").textContent = text;
}

export const percent = (v) => (v < 0.0005 ? "0 %" : (100 * v).toFixed(v < 0.0995 ? 1 : 0) + " %");
export const owed = (v) => (v ? percent(v) : "–");

export function bytes(n) {
	if (!n) return "0 B";
	const units = ["B", "KiB", "MiB", "GiB", "TiB"];
	const i = Math.min(Math.floor(Math.log2(n) / 10), 4);
	const v = n / 2 ** (10 * i);
	return (v >= 100 || Number.isInteger(v) ? Math.round(v) : v.toFixed(1)) + " " + units[i];
}

export function time(ns) {
	if (!ns) return "0 s";
	for (const [unit, size] of [["h", 3.6e12], ["min", 6e10], ["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
		if (ns >= size) {
			const v = ns / size;
			return (v >= 100 ? Math.round(v) : Number(v.toPrecision(3))) + " " + unit;
		}
	}
	return Math.round(ns) + " ns";
}

export const count = (n) => n.toLocaleString("en").replaceAll(",", " ");

const numbers = new Map(); // of domains, in the order in which the page met them

// look returns the classes of a domain's colour and dashes: eight colours that stay apart for colour-blind readers, then the
// same with dashes.
export function look(domain) {
	if (!numbers.has(domain)) numbers.set(domain, numbers.size);
	const n = numbers.get(domain);
	return {colour: "c" + (1 + (n % 8)), dash: n < 8 ? "" : "d" + (1 + (Math.floor(n / 8) - 1) % 3), number: n % 8};
}

export function swatch(domain) {
	const l = look(domain);
	return s("svg", {class: "swatch " + l.colour, viewBox: "0 0 14 10", width: 14, height: 10, "aria-hidden": "true"},
		s("line", {class: "key " + l.dash, x1: 0, x2: 14, y1: 5, y2: 5}));
}

// table returns a table with a caption; rows are arrays, their first cell the row's head.
export function table(caption, heads, rows) {
	return h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption}, h("table", {}, h("caption", {}, caption),
		h("thead", {}, h("tr", {}, heads.map((t) => h("th", {scope: "col"}, t)))),
		h("tbody", {}, rows.map((r) => h("tr", {}, r.map((c, i) => (i ? h("td", {}, c) : h("th", {scope: "row"}, c))))))));
}

// form returns a form whose submission calls send; it shows the error if that fails, and else announces done().
export function form(attributes, send, done, ...children) {
	const problem = h("p", {class: "alert", role: "alert"});
	const f = h("form", {...attributes, onsubmit: async (e) => {
		e.preventDefault();
		problem.textContent = "";
		try {
			await send(f);
			announce(done());
		} catch (e) {
			problem.textContent = e.message;
		}
	}}, ...children, problem);
	return f;
}
