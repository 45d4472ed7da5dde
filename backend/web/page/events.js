// The view of the events.

import {state} from "./state.js";
import {h, put} from "./dom.js";

// eventTable is a table of the events that pass a filter, the newest first.
export function eventTable(caption, passes, withDomain) {
	const body = h("tbody", {}), none = h("p", {class: "note"}), shown = new Map();
	const heads = ["Time", "Kind", ...(withDomain ? ["Domain"] : []), "Event", "By"];
	const by = (c) => (!c ? "the daemon" : c.remote ? c.remote : `user ${c.uid}, process ${c.pid}`);
	const row = (e) => h("tr", {}, h("th", {scope: "row"}, h("time", {datetime: e.time}, new Date(e.time).toLocaleTimeString())), h("td", {}, h("span", {class: "pill"}, e.kind)),
		withDomain && h("td", {}, e.domain && state.domains.has(e.domain) ? h("a", {href: "#/domain/" + encodeURIComponent(e.domain)}, e.domain) : e.domain || "–"),
		h("td", {class: "text"}, e.text), h("td", {}, by(e.by)));
	return {
		part: h("div", {}, h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption},
			h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, heads.map((t) => h("th", {scope: "col"}, t)))), body)), none),
		update() {
			const wanted = state.events.filter(passes), ids = new Set(wanted.map((e) => e.id));
			for (const [id, tr] of shown) if (!ids.has(id)) { tr.remove(); shown.delete(id); }
			let at = body.firstElementChild;
			for (const e of wanted.toReversed()) {
				if (!shown.has(e.id)) shown.set(e.id, row(e));
				const tr = shown.get(e.id);
				if (tr === at) at = at.nextElementSibling;
				else body.insertBefore(tr, at);
			}
			put(none, wanted.length ? "" : "No event.");
			return wanted.length;
		},
	};
}

export function eventsView() {
	const text = h("input", {type: "search", id: "text", oninput: () => update()});
	const kind = h("select", {id: "kind", onchange: () => update()}, h("option", {value: ""}, "all"));
	const number = h("p", {class: "note", role: "status"}), kinds = new Set();
	const all = eventTable("Events, the newest first", (e) => (!kind.value || e.kind === kind.value) &&
		`${e.kind} ${e.domain ?? ""} ${e.text}`.toLowerCase().includes(text.value.trim().toLowerCase()), true);
	function update() {
		for (const e of state.events) {
			if (kinds.has(e.kind)) continue;
			kinds.add(e.kind);
			kind.append(h("option", {value: e.kind}, e.kind));
		}
		put(number, `${all.update()} of ${state.events.length} events`);
	}
	return {
		title: "Events",
		parts: [h("h1", {}, "Events"), h("section", {class: "card", "aria-label": "Events"},
			h("div", {class: "tools"}, h("label", {for: "kind"}, "Kind", kind), h("label", {for: "text"}, "Filter by text", text), number), all.part)],
		update(what) { if (what === "events") update(); },
	};
}
