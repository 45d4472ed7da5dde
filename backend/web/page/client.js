// Requests to the daemon's API. The token is kept in the tab's session storage, and sent in a header only.

const key = "pegasus.token";

export const token = {
	get: () => sessionStorage.getItem(key) ?? "",
	set: (text) => sessionStorage.setItem(key, text),
	forget: () => sessionStorage.removeItem(key),
};

// Problem is an error of the API. Its code is "network" if the daemon did not answer.
export class Problem extends Error {
	constructor(p) {
		super(p.detail ?? p.title ?? "the daemon does not answer");
		this.code = p.code ?? "network";
		this.status = p.status ?? 0;
	}
}

async function open(method, path, body, signal) {
	const headers = {Authorization: "Bearer " + token.get()};
	if (body !== undefined) headers["Content-Type"] = "application/json";
	let answer;
	try {
		answer = await fetch(path, {method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal,
			cache: "no-store", credentials: "omit", redirect: "error"});
	} catch (cause) {
		if (signal?.aborted) throw cause;
		throw new Problem({});
	}
	if (!answer.ok) throw new Problem(await answer.json().catch(() => ({code: "internal", title: `HTTP ${answer.status}`, status: answer.status})));
	return answer;
}

// call returns the answer of one operation.
export async function call(method, path, body) {
	const answer = await open(method, path, body);
	return answer.status === 204 ? null : answer.json();
}

// lines calls each for every line of a stream until it ends, fails or is aborted. It returns when the daemon ends it,
// and fails after silence of so many milliseconds, if given: a connection can be dead without an end.
export async function lines(path, each, signal, silence) {
	const abort = new AbortController();
	const stop = () => abort.abort();
	signal.addEventListener("abort", stop);
	let timer;
	const alive = () => {
		if (!silence) return;
		clearTimeout(timer);
		timer = setTimeout(stop, silence);
	};
	try {
		alive();
		const answer = await open("GET", path, undefined, abort.signal);
		const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
		let rest = "";
		for (;;) {
			const {value, done} = await reader.read();
			if (done) return;
			alive();
			const parts = (rest + value).split("\n");
			rest = parts.pop();
			for (const part of parts) {
				if (!part) continue;
				const v = JSON.parse(part);
				if (v.problem) throw new Problem(v.problem);
				each(v);
			}
		}
	} finally {
		clearTimeout(timer);
		signal.removeEventListener("abort", stop);
		abort.abort();
	}
}

const least = 250, most = 5000; // ms between attempts to connect

// follow reads a stream until signal, and connects again after every end. It gives up when the daemon refuses the token.
export async function follow(path, {each, lost, refused, signal, silence}) {
	let wait = least;
	while (!signal.aborted) {
		let problem = new Problem({});
		try {
			await lines(path, (v) => { wait = least; each(v); }, signal, silence);
		} catch (e) {
			if (e instanceof Problem) problem = e;
		}
		if (signal.aborted) return;
		if (problem.status === 401 || problem.status === 403) return refused?.(problem);
		lost?.(problem);
		await new Promise((done) => {
			const t = setTimeout(done, wait * (0.8 + 0.4 * Math.random()));
			signal.addEventListener("abort", () => { clearTimeout(t); done(); }, {once: true});
		});
		wait = Math.min(2 * wait, most);
	}
}
