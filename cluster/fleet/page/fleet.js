// The view of a cluster: its accelerators, the domains of claims, and the hosts where shares are not kept.

import {h, put, percent, owed, bytes} from "./dom.js";

const every = 5000; // ms between two requests

const about = h("p", {class: "sub"}), figures = h("dl", {class: "figures"});
const hosts = h("div", {}), accelerators = h("div", {}), domains = h("div", {});
const filter = h("input", {type: "search", id: "filter", oninput: () => draw()});
let fleet = null;

document.getElementById("main").append(
	h("div", {class: "title"}, h("h1", {}, "Fleet"), about),
	card("sums", "Capacity", figures), card("hosts", "Hosts where shares are not kept", hosts), card("accelerators", "Accelerators", accelerators),
	h("section", {class: "card wide", "aria-labelledby": "domains"},
		h("div", {class: "head"}, h("h2", {id: "domains"}, "Domains"), h("label", {for: "filter"}, "Filter by claim, pod or node", filter)), domains));

function card(id, title, ...parts) {
	return h("section", {class: "card wide", "aria-labelledby": id}, h("h2", {id}, title), ...parts);
}

// show replaces the content of a part, unless it would look the same: focus and selections stay.
const shown = new Map();
function show(part, key, content) {
	if (shown.get(part) === key) return;
	shown.set(part, key);
	part.replaceChildren(...[content()].flat());
}

// grid returns a table; the cells of the columns from `from` on are numbers.
function grid(caption, heads, from, rows) {
	const to = heads.length - 1;
	const number = (i) => (i >= from && i < to ? "n" : null);
	return h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption}, h("table", {}, h("caption", {}, caption),
		h("thead", {}, h("tr", {}, heads.map((t, i) => h("th", {scope: "col", class: number(i)}, t)))),
		h("tbody", {}, rows.map((r) => h("tr", {}, r.map((c, i) => (i ? h("td", {class: number(i)}, c) : h("th", {scope: "row"}, c))))))));
}

const figure = (text, value, part) => h("div", {}, h("dt", {}, text), h("dd", {}, value),
	part !== undefined && h("div", {class: "meter", "aria-hidden": "true"}, h("i", {"width%": 100 * Math.min(part, 1)})));
const sold = (c) => (c.all ? c.sold / c.all : 0);
const maybe = (v) => (v === undefined ? "–" : percent(v));

// bullet shows a share against the entitlement, as on a host's page.
function bullet(d) {
	if (d.share === undefined) return "–";
	return [h("span", {class: "bullet", "aria-hidden": "true"}, h("i", {"width%": 100 * Math.min(d.share, 1)}), d.entitled ? h("b", {"left%": 100 * d.entitled}) : null), " ", percent(d.share)];
}

function draw() {
	if (!fleet) return;
	const s = fleet.sum;
	put(about, `${s.accelerators} accelerators on ${s.hosts} hosts, ${s.domains} domains of claims, as of ${new Date(fleet.at).toLocaleTimeString()}`);
	show(figures, JSON.stringify(s), () => [
		figure("Credits sold", `${s.credits.sold} of ${s.credits.all}`, sold(s.credits)), figure("Credits free", String(s.credits.free)),
		figure("Memory sold", `${bytes(s.memory.sold)} of ${bytes(s.memory.all)}`, sold(s.memory)), figure("Memory free", bytes(s.memory.free)),
		figure("Hosts that keep shares", `${s.hosts - s.hosts_not_kept - s.hosts_unknown} of ${s.hosts}`)]);
	const bad = fleet.hosts.filter((x) => x.shares_kept !== "yes" || x.reasons.length);
	show(hosts, JSON.stringify(bad), () => (bad.length === 0 ? h("p", {class: "note"}, "Every host keeps the shares of its domains.") : bad.map((x) => [
		h("p", {class: x.shares_kept === "no" ? "alert" : "note"}, x.node + {no: ": shares are not kept", unknown: ": unknown whether shares are kept", yes: ": shares are kept"}[x.shares_kept]),
		h("ul", {class: "why"}, x.reasons.map((why) => h("li", {}, why)))]).flat()));
	show(accelerators, JSON.stringify(fleet.accelerators), () => grid("Accelerators, with sold and free capacity",
		["Accelerator", "Node", "Model", "Policy", "Credits sold", "Free", "Memory sold", "Free", "Seats", "Busy", "Taints"], 4,
		fleet.accelerators.map((a) => [a.name, a.node, a.model, a.policy, `${a.credits.sold} of ${a.credits.all}`, String(a.credits.free),
			`${bytes(a.memory.sold)} of ${bytes(a.memory.all)}`, bytes(a.memory.free), `${a.seats.sold} of ${a.seats.all}`, maybe(a.busy), a.taints.join(", ") || "–"])));
	const text = filter.value.trim().toLowerCase();
	const name = (d) => (d.claim ? d.namespace + "/" + d.claim : d.domain);
	const some = fleet.domains.filter((d) => [name(d), d.node, ...(d.pods ?? [])].some((t) => t.toLowerCase().includes(text)));
	show(domains, text + JSON.stringify(fleet.domains), () => (some.length === 0 ? h("p", {class: "note"}, fleet.domains.length ? "No domain has such a name." : "There are no domains.") : [
		grid("Domains and their shares", ["Claim", "Pods", "Node", "Accelerator", "Credits", "Floor", "Entitled", "Share", "Waits", "Memory", "State"], 4,
			some.map((d) => [name(d), (d.pods ?? []).join(", ") || "–", d.node, d.accelerator || "–", String(d.credits), d.claim ? percent(d.floor) : "–",
				d.entitled === undefined ? "–" : owed(d.entitled), bullet(d), maybe(d.waiting),
				(d.memory_used === undefined ? "–" : bytes(d.memory_used)) + (d.memory ? " of " + bytes(d.memory) : ""), d.claim ? d.state : "without a claim"])),
		h("p", {class: "note"}, "Floor: the part of the accelerator that a claim's credits are of all that are sold there. Share: the bar is the measured part, the mark in it the part that the domain is entitled to.")]));
}

const link = document.getElementById("link");
function connected(state, text) {
	link.dataset.link = state;
	put(link, text);
}

for (;;) {
	if (!document.hidden) {
		try {
			const answer = await fetch("/fleet", {cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(60000)});
			if (!answer.ok) throw new Error((await answer.text()).slice(0, 300));
			fleet = await answer.json();
			draw();
			connected("live", "Live");
		} catch (e) {
			console.error(e);
			connected("lost", fleet ? `Not updated since ${new Date(fleet.at).toLocaleTimeString()}: ${e.message}` : "No answer: " + e.message);
		}
	}
	await new Promise((done) => setTimeout(done, every));
}
