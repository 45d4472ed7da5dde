// The view of the host: its accelerators, and its domains with their shares against their entitlements.

import {state, setPolicy} from "./state.js";
import {h, put, percent, owed, bytes, time, count, look, swatch, form, table} from "./dom.js";
import {shares, spark, keys} from "./chart.js";

const mostLines = 8; // domains in an accelerator's chart

export function hostView() {
	const cards = h("div", {class: "cards"}), about = h("p", {class: "sub"});
	const accelerators = new Map(), list = domainList();
	let drawn = 0;
	return {
		title: "Host",
		parts: [h("div", {class: "title"}, h("h1", {}, "Host"), about), cards, list.part],
		update(what) {
			if (what !== "live") return;
			const s = state.status;
			if (s) put(about, `Pegasus ${s.version}, ${count(state.domains.size)} domains, started ${new Date(s.started).toLocaleString()}` + (s.config_error ? `. The last reload was refused: ${s.config_error}` : ""));
			const draw = Date.now() - drawn > 1900;
			if (draw) drawn = Date.now();
			for (const [name, a] of state.accelerators) {
				if (!accelerators.has(name)) {
					accelerators.set(name, card(a));
					cards.append(accelerators.get(name).part);
				}
				accelerators.get(name).update(a, draw);
			}
			for (const [name, c] of accelerators) {
				if (!state.accelerators.has(name)) { c.part.remove(); accelerators.delete(name); }
			}
			list.update(draw);
		},
	};
}

// card is one accelerator.
function card(a) {
	const id = "accelerator-" + a.name;
	const dd = {}, meters = {};
	const figure = (key, text, meter) => {
		dd[key] = h("dd", {});
		if (meter) meters[key] = h("i", {});
		return h("div", {}, h("dt", {}, text), dd[key], meter && h("div", {class: "meter", "aria-hidden": "true"}, meters[key]));
	};
	const chart = h("div", {}), legend = h("div", {}), values = h("details", {}, h("summary", {}, "Shares as a table"));
	const body = h("div", {});
	values.append(body);
	const why = h("p", {class: "note"});
	const policy = h("div", {});
	const part = h("section", {class: "card", "aria-labelledby": id},
		h("div", {class: "head"}, h("h2", {id}, a.name), h("span", {class: "sub"}, a.device)),
		h("dl", {class: "figures"}, figure("busy", "Busy", true), figure("memory", "Memory", true), figure("domains", "Domains"),
			figure("cost", "A decision takes (p50, p99)"), figure("policy", "Policy, mode")),
		chart, legend, why, policy, values);
	let operates = null;
	return {part, update(a, draw) {
		put(dd.busy, percent(a.busy));
		meters.busy.style.width = 100 * a.busy + "%";
		put(dd.memory, `${bytes(a.memory_used)} of ${bytes(a.memory)}`);
		meters.memory.style.width = (a.memory ? 100 * a.memory_used / a.memory : 0) + "%";
		put(dd.domains, `${a.domains.length} of ${a.max_domains}`);
		put(dd.cost, a.decision_cost.count ? `${time(a.decision_cost.p50_ns)}, ${time(a.decision_cost.p99_ns)}` : "–");
		put(dd.policy, `${a.policy}, ${a.mode}`);
		put(why, a.explanation ? "Last decision: " + a.explanation : "");
		if (operates !== state.role) { // a form is built once, so that input in it stays
			operates = state.role;
			policy.replaceChildren(operates === "operate" ? policyForm(a) : "");
		}
		if (!draw) return;
		const mine = [...state.domains.values()].filter((d) => d.accelerator === a.name);
		const top = mine.sort((x, y) => y.share - x.share || y.entitled - x.entitled || (x.name < y.name ? -1 : 1)).slice(0, mostLines);
		const lines = top.map((d) => ({name: d.name, look: look(d.name), samples: state.history.get(d.name) ?? []}));
		const said = top.length ? top.map((d) => `${d.name} ${percent(d.share)} of ${owed(d.entitled)}`).join(", ") : "no domain";
		chart.replaceChildren(shares(chart.clientWidth, `Shares of ${a.name} in the last 10 minutes. Now, of the entitled part: ${said}`, lines, Date.now()));
		legend.replaceChildren(keys([...top.map((d) => [swatch(d.name), `${d.name} ${percent(d.share)}`]), h("span", {class: "sub"},
			"dotted: entitled" + (mine.length > top.length ? `; ${mine.length - top.length} more domains are in the table below` : ""))]));
		if (values.open) {
			body.replaceChildren(table(`Shares of ${a.name} now`, ["Domain", "Share", "Entitled", "Mean of 10 min"],
				top.map((d) => [d.name, percent(d.share), owed(d.entitled), percent(mean(state.history.get(d.name) ?? []))])));
		}
	}};
}

const mean = (samples) => samples.reduce((sum, v) => sum + v.share, 0) / (samples.length || 1);

function policyForm(a) {
	const option = (now) => (v) => h("option", {value: v, selected: v === now}, v);
	const policies = state.status?.policies ?? [a.policy];
	return form({class: "set", "aria-label": "Policy of " + a.name},
		(f) => setPolicy(a.name, f.elements.policy.value, f.elements.mode.value),
		() => `The policy of ${a.name} is set`,
		h("label", {}, "Policy", h("select", {name: "policy"}, policies.map(option(a.policy)))),
		h("label", {}, "Mode", h("select", {name: "mode"}, ["production", "paper"].map(option(a.mode)))),
		h("button", {}, "Switch policy"));
}

// domainList is the table of all domains, with a filter and an order.
function domainList() {
	const columns = [
		["Domain", (d) => d.name], ["Accelerator", (d) => d.accelerator], ["State", (d) => d.state], ["Credits", (d) => d.credits],
		["Share", (d) => d.share], ["Entitled", (d) => d.entitled], ["10 min", null], ["Wait p50", (d) => d.wait_p50_ns], ["Wait p99", (d) => d.wait_p99_ns],
		["Memory", (d) => d.memory], ["Calls", (d) => d.calls], ["Processes", (d) => d.processes],
	];
	let order = 0, down = false, placed = 0;
	const rows = new Map(), seen = new Set();
	const body = h("tbody", {}), none = h("p", {class: "note"});
	const filter = h("input", {type: "search", id: "filter", oninput: () => place()});
	const heads = columns.map(([text, of], i) => h("th", {scope: "col", class: i > 2 ? "n" : null, "aria-sort": i === 0 ? "ascending" : null},
		of ? h("button", {type: "button", onclick: () => sort(i)}, text) : text));
	const onScreen = new IntersectionObserver((all) => {
		for (const e of all) e.isIntersecting ? seen.add(e.target.dataset.domain) : seen.delete(e.target.dataset.domain);
		draw();
	}, {rootMargin: "200px"});

	function sort(i) {
		down = order === i ? !down : i > 2;
		order = i;
		heads.forEach((th, n) => (n === i ? th.setAttribute("aria-sort", down ? "descending" : "ascending") : th.removeAttribute("aria-sort")));
		place();
	}

	function row(d) {
		const td = columns.map((_, i) => h(i ? "td" : "th", {class: i > 2 ? "n" : null, scope: i ? null : "row"}));
		td[0].append(swatch(d.name), h("a", {href: "#/domain/" + encodeURIComponent(d.name)}, d.name));
		const pill = h("span", {class: "pill"}), share = h("span", {}), used = h("i", {}), due = h("b", {});
		td[2].append(pill);
		td[4].append(h("span", {class: "bullet", "aria-hidden": "true"}, used, due), " ", share);
		const tr = h("tr", {"data-domain": d.name}, td);
		let last = null;
		return {tr, spark: td[6], update(d) {
			if (last === d) return; // the daemon reported no change
			last = d;
			put(td[1], d.accelerator || "–");
			put(pill, d.objective?.state === "violated" ? d.state + ", objective violated" : d.state);
			pill.dataset.state = d.objective?.state === "violated" ? "violated" : d.state;
			put(td[3], String(d.credits));
			put(share, percent(d.share));
			used.style.width = 100 * Math.min(d.share, 1) + "%";
			due.style.left = 100 * d.entitled + "%";
			due.style.display = d.entitled ? "" : "none";
			put(td[5], owed(d.entitled));
			put(td[7], time(d.wait_p50_ns));
			put(td[8], time(d.wait_p99_ns));
			put(td[9], bytes(d.memory) + (d.memory_quota ? " of " + bytes(d.memory_quota) : ""));
			put(td[10], count(d.calls));
			put(td[11], String(d.processes));
		}};
	}

	function place() { // puts the rows in order, and moves only those that have another place
		const of = columns[order][1], text = filter.value.trim().toLowerCase();
		const all = [...state.domains.values()].sort((a, b) => {
			const x = of(a), y = of(b);
			return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1) || (a.name < b.name ? -1 : 1);
		});
		let at = body.firstElementChild, shown = 0;
		for (const d of all) {
			const {tr} = rows.get(d.name) ?? {};
			if (!tr) continue;
			tr.hidden = text !== "" && !d.name.toLowerCase().includes(text);
			if (!tr.hidden) shown++;
			if (tr === at) at = at.nextElementSibling;
			else body.insertBefore(tr, at);
		}
		put(none, all.length === 0 ? "There are no domains: pegasus run -- PROGRAM makes one." : shown === 0 ? "No domain has such a name." : "");
	}

	function draw() {
		for (const name of seen) {
			const cell = rows.get(name)?.spark, samples = state.history.get(name) ?? [];
			if (!cell || !samples.some((s) => s.share)) cell?.replaceChildren();
			else cell.replaceChildren(spark(samples, look(name)));
		}
	}

	const part = h("section", {class: "card wide", "aria-labelledby": "domains"},
		h("div", {class: "head"}, h("h2", {id: "domains"}, "Domains"), h("label", {for: "filter"}, "Filter by name", filter)),
		h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of domains"}, h("table", {},
			h("caption", {}, "Domains and their shares"),
			h("thead", {}, h("tr", {}, heads)), body)), none, h("p", {class: "note"}, "Share: the bar is the part in use, the mark in it the part that the domain is entitled to."));
	return {part, update(sparks) {
		let added = false;
		for (const [name, d] of state.domains) {
			if (!rows.has(name)) {
				rows.set(name, row(d));
				added = true;
				onScreen.observe(rows.get(name).tr);
			}
			rows.get(name).update(d);
		}
		for (const [name, r] of rows) {
			if (state.domains.has(name)) continue;
			onScreen.unobserve(r.tr);
			r.tr.remove();
			rows.delete(name);
			seen.delete(name);
		}
		const inRow = document.activeElement?.closest?.("tbody") === body;
		// The order by name is stable; with another order, a moved row would lose the focus.
		if (added || order > 0 && !inRow && Date.now() - placed > 1900) { placed = Date.now(); place(); }
		if (sparks) draw();
	}};
}
