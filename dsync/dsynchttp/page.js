// Updates the page while it is visible. Elements that did not change are left alone, so
// that the focus, typed text and opened details stay.
'use strict';
(() => {
	const main = document.getElementById('content');
	const live = document.getElementById('live');
	const id = n => n.nodeType === Node.ELEMENT_NODE ? n.getAttribute('data-id') : null;

	function same(have, want) {
		if (have.nodeType !== Node.ELEMENT_NODE) {
			if (have.data !== want.data) have.data = want.data;
			return;
		}
		for (const { name, value } of want.attributes) {
			if (have.getAttribute(name) !== value) have.setAttribute(name, value);
		}
		for (const { name } of [...have.attributes]) {
			if (name !== 'open' && !want.hasAttribute(name)) have.removeAttribute(name);
		}
		children(have, want);
	}

	function children(have, want) {
		const known = new Map();
		for (const c of have.childNodes) {
			if (id(c) !== null) known.set(id(c), c);
		}
		let at = have.firstChild;
		for (const w of [...want.childNodes]) {
			let h = at;
			if (id(w) !== null) h = known.get(id(w));
			else if (h && id(h) !== null) h = null;
			if (!h || h.nodeName !== w.nodeName) {
				have.insertBefore(document.importNode(w, true), at);
				continue;
			}
			if (h === at) at = at.nextSibling;
			else have.insertBefore(h, at);
			same(h, w);
		}
		while (at) {
			const next = at.nextSibling;
			at.remove();
			at = next;
		}
	}

	function say(text, className) {
		if (live.textContent !== text) live.textContent = text;
		live.className = 'live ' + className;
	}

	// Ages and timelines are rendered as of one moment, the anchor, for as long as a stream of
	// events lasts, and go on from there by this page's clock.
	let anchor = performance.now(), size = 0;
	function age(ms) {
		const s = Math.max(0, ms) / 1000;
		if (s < 10 && ms % 1000 !== 0) return s.toFixed(1) + ' s';
		if (s < 120) return Math.floor(s) + ' s';
		if (s < 7200) return Math.floor(s / 60) + ' min';
		if (s < 172800) return Math.floor(s / 3600) + ' h';
		return Math.floor(s / 86400) + ' d';
	}
	function tick() {
		const since = performance.now() - anchor;
		if (size) main.style.setProperty('--drift', 100 * since / size);
		for (const e of main.querySelectorAll('time[data-age]')) {
			const text = age(Math.round(Number(e.dataset.age) + since));
			if (e.firstChild.data !== text) e.firstChild.data = text;
		}
	}
	setInterval(() => { if (source) tick(); }, 1000);

	// The lines of the content, as of the last event: see event in patch.go.
	let lines = [];
	function patch(data) {
		const [times, ...edits] = data.split('\n'), next = [];
		for (const e of edits) {
			if (e[0] === '+') {
				next.push(e.slice(1));
				continue;
			}
			const [from, n] = e.slice(1).split(',').map(Number);
			for (let i = from; i < from + n; i++) next.push(lines[i]);
		}
		lines = next;
		const [since, window] = times.split(' ').map(Number);
		anchor = performance.now() - since;
		size = window;
		return lines.join('\n');
	}

	let source = null;
	function follow() {
		if (document.hidden) {
			if (source) source.close();
			source = null;
			say('paused', '');
			return;
		}
		if (source) return;
		source = new EventSource('events' + location.search);
		source.addEventListener('content', e => {
			children(main, new DOMParser().parseFromString('<main>' + patch(e.data) + '</main>', 'text/html').querySelector('main'));
			tick();
			say('live', 'on');
		});
		source.onopen = () => say('live', 'on');
		source.onerror = () => say(source && source.readyState === EventSource.CLOSED ? 'not live: reload' : 'connecting', 'off');
	}
	document.addEventListener('visibilitychange', follow);
	addEventListener('pagehide', () => { if (source) source.close(); source = null; });
	addEventListener('pageshow', follow);
	say('connecting', '');
	follow();
})();
