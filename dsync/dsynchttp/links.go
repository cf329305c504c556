package dsynchttp

// Methods of looks for the template.

func (l look) Key() string           { return l.q.key }
func (l look) Prefix() string        { return l.q.prefix }
func (l look) After() string         { return l.q.after }
func (l look) N() int                { return l.q.n }
func (l look) CanBreak() bool        { return l.canBreak }
func (l look) Asked() bool           { return l.asked }
func (l look) Window() string        { return windowTitle(l.q.window) }
func (l look) WindowName() string    { return windowName(l.q.window) }
func (k keyLook) Timeline() timeline { return k.timeline }
func (o ownerLook) Style() string    { return o.style }
func (o ownerLook) Use() string      { return o.use }
func (m memberLook) Style() string   { return m.style }
func (s sessionLook) Who() string    { return who(s.Name, s.Host, "this process") }
func (m memberLook) Who() string     { return who(m.Name, m.Host, m.Session) }
func (o ownerLook) Who() string      { return who(o.Name, o.Host, o.Session) }

// Unknown reports whether there is no record of the key that was asked for.
func (l look) Unknown() bool { return len(l.Keys) == 1 && l.Keys[0].Kind == "" }

// LeasePercent is how much of the lease is left.
func (s sessionLook) LeasePercent() string {
	return percent(100 * float64(s.Left) / float64(max(1, s.Lease)))
}

// who names a process for people.
func who(name, host, session string) string {
	switch {
	case name != "":
		return name
	case host != "":
		return host
	}
	return session
}

// KeyLink is the address of the page about key.
func (l look) KeyLink(key string) string { return query{key: key, n: 100, window: l.q.window}.link() }

// First is the address of the first page of keys.
func (l look) First() string {
	q := l.q
	q.after = ""
	return q.link()
}

// JSON is the address of this page as JSON.
func (l look) JSON() string {
	v := l.q.values()
	v.Set("format", "json")
	if l.q.key != "" {
		return "key?" + v.Encode()
	}
	return "./?" + v.Encode()
}

// A choice is a link to this page with another window.
type choice struct {
	Name, Link string
	Is         bool
}

// Windows are the times that timelines can show.
func (l look) Windows() (all []choice) {
	for _, w := range windows {
		q := l.q
		q.window = w
		all = append(all, choice{windowTitle(w), q.link(), w == l.q.window})
	}
	return all
}
