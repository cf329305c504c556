package hostdir

import "os"

// OfBoot returns the folder as a machine with the given boot id would see it.
func (d *Dir) OfBoot(boot string) *Dir { return &Dir{d.path, boot} }

// At returns the folder at path without making Open's checks.
func At(path string) *Dir { return &Dir{path, "boot"} }

// Local is the function local, for tests.
var Local = local

// Mark returns the mark of the file at path.
func (d *Dir) Mark(path string) string {
	f, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	return d.mark(f)
}

// Opened opens the session's file now. The returned function works like Dead, but on this open file.
func (d *Dir) Opened(session, mark string) (dead func() bool) {
	f, err := os.Open(d.file(session))
	if err != nil {
		panic(err)
	}
	return func() bool {
		defer f.Close()
		return d.free(f, session, mark)
	}
}
