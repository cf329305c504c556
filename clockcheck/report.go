package clockcheck

// A Report is what one check of a [Monitor] returned: the two results of [Check].
type Report struct {
	Result Result
	Err    error
}
