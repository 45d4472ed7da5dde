// The frame of the page: the sign-in, the views by address, and the state of the connection.

import {token, call} from "./client.js";
import {state, subscribe, start, stop, running, forget} from "./state.js";
import {h, put} from "./dom.js";
import {hostView} from "./host.js";
import {domainView} from "./domain.js";
import {timelineView} from "./timeline.js";
import {eventsView} from "./events.js";

const main = document.getElementById("main"), nav = document.getElementById("nav");
const link = document.getElementById("link"), leave = document.getElementById("leave");
let end = null; // ends the view

// A view fills its element and returns {title, update(what), end()}.
function viewOf(hash) {
	if (hash.startsWith("#/domain/")) {
		try {
			return domainView(decodeURIComponent(hash.slice("#/domain/".length)));
		} catch {
			return hostView();
		}
	}
	return {"#/timeline": timelineView, "#/events": eventsView}[hash]?.() ?? hostView();
}

function show(focus) {
	end?.();
	end = null;
	if (!token.get()) return signIn("");
	const view = viewOf(location.hash);
	const unsubscribe = subscribe((what) => view.update?.(what));
	end = () => { unsubscribe(); view.end?.(); };
	main.replaceChildren(...view.parts);
	document.title = view.title + " – Pegasus";
	for (const a of nav.children) {
		const here = (location.hash || "#/") === a.getAttribute("href");
		here ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
	}
	nav.hidden = leave.hidden = false;
	view.update?.("live");
	view.update?.("events");
	if (focus) {
		const head = main.querySelector("h1");
		head.tabIndex = -1;
		head.focus();
		scrollTo(0, 0);
	}
	if (!running()) start(refused);
}

function refused(problem) {
	forget();
	end?.();
	end = null;
	signIn(problem.message);
}

function signIn(message) {
	nav.hidden = leave.hidden = true;
	document.title = "Pegasus";
	const field = h("input", {type: "password", id: "token", autocomplete: "off", required: true, "aria-describedby": "about problem"});
	const problem = h("p", {class: "alert", role: "alert", id: "problem"});
	main.replaceChildren(h("section", {class: "card sign"}, h("h1", {}, "Token"),
		h("p", {class: "note", id: "about"}, "The content of the file that ", h("code", {}, "view_token"), " or ", h("code", {}, "operate_token"),
			" of the daemon's configuration names. This tab keeps it until it is closed."),
		h("form", {onsubmit: async (e) => {
			e.preventDefault();
			problem.textContent = "";
			token.set(field.value.trim());
			try {
				await call("GET", "/v1/status");
				show(true);
			} catch (e) {
				token.forget();
				problem.textContent = e.status === 401 ? "The daemon refuses the token: " + e.message : e.message;
				field.select();
			}
		}}, h("label", {for: "token"}, "Token", field), problem, h("button", {class: "main"}, "Connect"))));
	problem.textContent = message;
	field.focus();
}

subscribe((what) => {
	if (what !== "link") return;
	link.dataset.link = state.link;
	put(link, {live: "Live, may " + state.role, lost: "Connection lost; connecting again", connecting: "Connecting"}[state.link] ?? "Not connected");
});

document.getElementById("skip").addEventListener("click", (e) => { e.preventDefault(); main.focus(); });
leave.addEventListener("click", () => { forget(); show(true); });
let hidden = 0; // a hidden tab gives its connections back: a browser has six for one host
document.addEventListener("visibilitychange", () => {
	clearTimeout(hidden);
	if (document.hidden) hidden = setTimeout(stop, 30000);
	else if (token.get() && !running()) start(refused);
});
addEventListener("hashchange", () => show(true));
show(false);
