// Search: finds the sections that contain every word of the query, the best first. The index is a script, which also
// loads from a file, unlike a request; it is loaded when the field gets the focus.
"use strict";
(() => {
	const root = new URL(".", document.currentScript.src);
	const form = document.getElementById("search"), list = document.getElementById("found"), count = document.getElementById("count");
	const input = form.querySelector("input");
	let loading = null, chosen = -1;

	const load = () => loading ??= new Promise((done, failed) => {
		const script = document.createElement("script");
		script.src = new URL("index.js", root);
		script.onload = () => done(window.pegasusIndex.map(s => ({...s, low: [s.page, s.section, s.text].map(t => t.toLowerCase())})));
		script.onerror = failed;
		document.head.append(script);
	});

	// score returns 0 unless the section has all words; words of titles count for more.
	const score = (low, words) => {
		let sum = 0;
		for (const word of words) {
			const n = (low[0].includes(word) ? 8 : 0) + (low[1].includes(word) ? 12 : 0) + Math.min(4, low[2].split(word).length - 1);
			if (n === 0) return 0;
			sum += n;
		}
		return sum;
	};

	const excerpt = (s, word) => {
		const from = Math.max(0, s.low[2].indexOf(word) - 50);
		return (from > 0 ? "…" : "") + s.text.slice(from, from + 150) + (from + 150 < s.text.length ? "…" : "");
	};

	const close = () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); };

	const choose = n => {
		const all = list.children;
		if (all.length === 0) return;
		all[chosen]?.setAttribute("aria-selected", "false");
		chosen = (n + all.length) % all.length;
		all[chosen].setAttribute("aria-selected", "true");
		all[chosen].scrollIntoView({block: "nearest"});
		input.setAttribute("aria-activedescendant", all[chosen].id);
	};

	const search = async () => {
		const query = input.value, words = query.toLowerCase().split(/\s+/).filter(w => w !== "");
		if (words.length === 0) return close();
		const index = await load();
		if (query !== input.value) return;
		const found = index.map(s => [score(s.low, words), s]).filter(f => f[0] > 0).sort((a, b) => b[0] - a[0]).slice(0, 20).map(f => f[1]);
		list.replaceChildren(...found.map((s, i) => {
			const item = document.createElement("li"), link = document.createElement("a"), title = document.createElement("b"), text = document.createElement("small");
			item.id = "found" + i;
			item.setAttribute("role", "option");
			item.setAttribute("aria-selected", "false");
			link.href = new URL(s.url, root);
			link.tabIndex = -1;
			title.textContent = s.page + (s.section && s.section !== s.page ? " › " + s.section : "");
			text.textContent = excerpt(s, words[0]);
			link.append(title, text);
			item.append(link);
			return item;
		}));
		chosen = -1;
		list.hidden = found.length === 0;
		input.setAttribute("aria-expanded", String(found.length > 0));
		count.textContent = found.length === 0 ? "No results" : found.length + " results";
		choose(0);
	};

	form.hidden = false;
	input.addEventListener("focus", load);
	input.addEventListener("input", search);
	form.addEventListener("submit", e => { e.preventDefault(); list.children[chosen]?.querySelector("a").click(); close(); });
	form.addEventListener("focusout", e => { if (!form.contains(e.relatedTarget)) setTimeout(close, 150); });
	list.addEventListener("click", close);
	document.addEventListener("keydown", e => {
		if (e.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName) && !e.ctrlKey && !e.metaKey && !e.altKey) {
			e.preventDefault();
			input.focus();
		} else if (document.activeElement === input && !list.hidden && (e.key === "ArrowDown" || e.key === "ArrowUp")) {
			e.preventDefault();
			choose(chosen + (e.key === "ArrowDown" ? 1 : -1));
		} else if (e.key === "Escape" && form.contains(document.activeElement)) {
			close();
			input.blur();
		}
	});
})();
