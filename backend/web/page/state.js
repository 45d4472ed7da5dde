// The state of the host as the daemon has reported it, with recent samples of each domain. Views read it and
// subscribe to its changes.

import {call, follow, token} from "./client.js";

const kept = 300; // samples of a domain, one each 2 s
const period = 2000;
const keptEvents = 1000;

export const state = {
	role: "", link: "none", status: null, problem: null,
	accelerators: new Map(), domains: new Map(), events: [], history: new Map(),
};

const views = new Set();
// subscribe calls view(what) after each change, with what: "live", "events" or "link". It returns the function that ends it.
export function subscribe(view) {
	views.add(view);
	return () => views.delete(view);
}
const changed = (what) => { for (const v of [...views]) v(what); };

let abort = null, sampled = 0;

function linked(link, problem) {
	if (state.link === link && !problem) return;
	state.link = link;
	state.problem = problem ?? null;
	changed("link");
}

function takeLive(v) {
	if (v.status) { // the first line has everything
		state.role = v.role;
		state.status = v.status;
		state.accelerators.clear();
		state.domains.clear();
		linked("live");
	}
	for (const a of v.accelerators) state.accelerators.set(a.name, a);
	for (const d of v.domains) state.domains.set(d.name, d);
	for (const name of v.gone ?? []) { state.domains.delete(name); state.history.delete(name); }
	const at = v.at / 1e6;
	if (at - sampled >= period - 200) {
		for (const d of state.domains.values()) sample(d, at);
		sampled = at;
	}
	changed("live");
}

function historyOf(name) {
	if (!state.history.has(name)) state.history.set(name, []);
	return state.history.get(name);
}

function sample(d, at) {
	const all = historyOf(d.name), s = d.spent;
	all.push({at, share: d.share, entitled: d.entitled, memory: d.memory,
		spent: s.window_ns ? [s.accelerator, s.turn, s.vcpu, s.idle] : null});
	if (all.length > kept) all.splice(0, all.length - kept);
}

// takeHistory adds the daemon's own samples where the page has none.
async function takeHistory() {
	let h;
	try {
		h = await call("GET", "/v1/history");
	} catch {
		return; // a daemon without samples: the page collects its own
	}
	const slot = (s) => Math.round(s.at / period);
	for (const d of h.domains) {
		const own = historyOf(d.domain), taken = new Set(own.map(slot));
		for (const s of d.samples) {
			const v = {at: s.at / 1e6, share: s.share, entitled: s.entitled, memory: s.memory, spent: null};
			if (!taken.has(slot(v))) own.push(v);
		}
		own.sort((a, b) => a.at - b.at);
		own.splice(0, Math.max(0, own.length - kept));
	}
	changed("live");
}

function takeEvent(e) {
	const id = e.time + e.kind + (e.domain ?? "") + e.text;
	if (state.events.some((o) => o.id === id)) return; // a new connection begins with the latest events
	state.events.push({...e, id});
	if (state.events.length > keptEvents) state.events.shift();
	later();
}

let waiting = false;
function later() { // events come in batches
	if (waiting) return;
	waiting = true;
	setTimeout(() => { waiting = false; changed("events"); }, 50);
}

// start follows the daemon with the token until stop. refused is called when the daemon doesn't accept the token.
export function start(refused) {
	stop();
	abort = new AbortController();
	const {signal} = abort;
	const end = (p) => { if (!signal.aborted) { stop(); linked("none", p); refused(p); } };
	linked("connecting");
	follow("/v1/live", {each: takeLive, lost: () => linked("lost"), refused: end, signal, silence: 10000});
	follow("/v1/events", {each: takeEvent, refused: end, signal});
	takeHistory();
}

export function stop() {
	abort?.abort();
	abort = null;
}

export const running = () => abort !== null;

// forget drops the token and all that was read with it.
export function forget() {
	stop();
	token.forget();
	for (const m of [state.accelerators, state.domains, state.history]) m.clear();
	state.events = [];
	state.role = "";
	linked("none");
}

// setDomain changes settings of a domain and returns when the daemon has applied them.
export async function setDomain(name, settings) {
	const d = await call("PATCH", "/v1/domains/" + encodeURIComponent(name), {settings});
	state.domains.set(name, d);
	changed("live");
}

// setPolicy switches the policy and the mode of an accelerator.
export async function setPolicy(accelerator, name, mode) {
	const all = await call("PATCH", "/v1/accelerators?accelerator=" + encodeURIComponent(accelerator), {name, mode});
	for (const a of all) state.accelerators.set(a.name, a);
	changed("live");
}
