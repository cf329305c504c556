// Keeps the page up to date while it is visible. What did not change is left as it
// is, so that the focus, what is typed and what is opened stay.
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
			children(main, new DOMParser().parseFromString('<main>' + e.data + '</main>', 'text/html').querySelector('main'));
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
