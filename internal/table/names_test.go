package table_test

import (
	"errors"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is the path of the root module. The paths of the other modules are this path followed by their folders.
const module = "github.com/leasehold-go/leasehold"

// public lists the folders of the packages that users may import.
var public = []string{
	"dsync", "dsync/admin", "dsync/mongo", "dsync/mongo/fence", "dsync/driver", "dsync/dsynctest", "dsync/dsynchttp",
	"dsync/agent",
	"leader", "leader/mongo", "clockcheck", "otel",
	"adapters/certmagic", "adapters/clientgo", "adapters/gocron", "adapters/golangmigrate", "adapters/robfigcron",
}

// forTests lists packages for implementing and testing stores. If such a package exports a name, a use in another
// package's tests counts, too.
var forTests = []string{"dsync/driver", "dsync/dsynctest"}

// harness lists the folders whose programs and packages only test or measure other packages. All their code counts as
// tests.
var harness = []string{
	"bench", "integration", "internal/explore", "internal/mongod", "internal/mongofake", "internal/mutants",
	"internal/program", "internal/testkit",
}

// called lists the methods that package errors calls through unnamed interfaces.
var called = []string{"As", "Is", "Unwrap"}

// Every exported name has an Example or a use outside its package, so the API contains nothing unused. A use counts if
// it is in an Example, in code that the documentation shows, or in another package's code. Uses in another package's
// tests do not count (but see forTests). These count as used, too:
//
//   - a method that makes its type satisfy an interface;
//   - a method of an interface, if the interface's own package calls the method;
//   - the type to which a used method or field belongs;
//   - the types that occur in the type of a used name.
func TestExportedNamesAreUsed(t *testing.T) {
	c := newChecker(t)
	for _, folder := range c.folders {
		c.load(folder)
	}
	for _, folder := range c.folders {
		c.loadTests(folder)
	}
	names := c.exported()
	if len(names) < 500 {
		t.Errorf("%d exported names, want at least 500", len(names))
	}
	for _, n := range c.unused(names) {
		t.Errorf("%s: %s has neither an Example nor a use outside its package", c.fset.Position(n.obj.Pos()), n.text)
	}
}

// A checker type-checks all packages of the repository, from their sources. The only other packages that it knows are
// those of the standard library. Names from other modules have no type here and are not checked.
//
// A package is checked a second time, together with its tests. The checker identifies a declaration by its position,
// which stays the same because each file is parsed only once.
type checker struct {
	t       *testing.T
	fset    *token.FileSet
	context build.Context
	std     types.Importer
	folders []string
	parsed  map[string]*ast.File
	loaded  map[string]*loaded // by folder
	uses    map[token.Pos][]use
	foreign map[token.Pos]bool // the types that satisfy an interface of another module
}

// The type loaded describes a package of the repository. Its field pkg is the package without its tests, or nil until
// load has checked it.
type loaded struct {
	pkg *types.Package
	dir *build.Package
}

// A use is one place where a name is used.
type use struct {
	folder string
	kind   useKind
}

type useKind int

const (
	inCode useKind = iota
	inExample
	inTest
)

func newChecker(t *testing.T) *checker {
	c := &checker{
		t: t, fset: token.NewFileSet(), context: build.Default,
		parsed: map[string]*ast.File{}, loaded: map[string]*loaded{}, uses: map[token.Pos][]use{}, foreign: map[token.Pos]bool{},
	}
	c.context.GOOS, c.context.GOARCH, c.context.CgoEnabled = "linux", "amd64", false // to check the same files on every machine
	c.context.BuildTags = []string{"mongodb"}
	imports := map[string]bool{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		dir, err := c.context.ImportDir(name, 0)
		if none := (*build.NoGoError)(nil); errors.As(err, &none) {
			if len(dir.TestGoFiles)+len(dir.XTestGoFiles) == 0 {
				return nil
			}
		} else if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		c.folders = append(c.folders, folder)
		c.loaded[folder] = &loaded{dir: dir}
		for _, some := range [][]string{dir.Imports, dir.TestImports, dir.XTestImports} {
			for _, p := range some {
				if isStandard(p) {
					imports[p] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.std = c.standard(slices.Sorted(maps.Keys(imports)))
	return c
}

// standard returns an importer for the given packages of the standard library. It reads the packages as compiled by
// the go command.
func (c *checker) standard(paths []string) types.Importer {
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, paths...)
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		c.t.Fatalf("go list: %v", err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		p, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[p] = file
	}
	return importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
}

// Import returns a package of the standard library or of this repository.
func (c *checker) Import(name string) (*types.Package, error) {
	if folder, ok := strings.CutPrefix(name, module+"/"); ok {
		return c.load(folder), nil
	}
	if isStandard(name) {
		return c.std.Import(name)
	}
	base := path.Base(name)
	if v, ok := strings.CutPrefix(base, "v"); ok && strings.Trim(v, "0123456789") == "" {
		base = path.Base(path.Dir(name))
	}
	return types.NewPackage(name, base), errors.New("of another module") // because of the error, go/types accepts any name in the package
}

func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// code returns the kind of the uses in a folder's files other than test files.
func code(folder string) useKind {
	if slices.ContainsFunc(harness, func(h string) bool { return folder == h || strings.HasPrefix(folder, h+"/") }) {
		return inTest
	}
	return inCode
}

// load returns the package in a folder, without its tests. The first call for a folder checks the package.
func (c *checker) load(folder string) *types.Package {
	l := c.loaded[folder]
	if l == nil {
		c.t.Fatalf("no package in %s", folder)
	}
	if l.pkg == nil {
		l.pkg = c.check(folder, c, l.dir.GoFiles, func(string) useKind { return code(folder) })
	}
	return l.pkg
}

// loadTests checks the tests of a folder, both internal and external ones.
func (c *checker) loadTests(folder string) {
	dir := c.loaded[folder].dir
	kind := func(name string) useKind {
		if !strings.HasSuffix(name, "_test.go") {
			return code(folder) // again
		}
		if strings.HasPrefix(name, "example") && code(folder) == inCode || folder == "docs" || folder == "integration/recipes" {
			return inExample
		}
		return inTest
	}
	imp := types.Importer(c)
	if len(dir.TestGoFiles) > 0 {
		pkg := c.check(folder, c, slices.Concat(dir.GoFiles, dir.TestGoFiles), kind)
		imp = withTests{c, pkg}
	}
	if len(dir.XTestGoFiles) > 0 {
		c.check(folder, imp, dir.XTestGoFiles, kind)
	}
}

// withTests is the importer for the external tests of a package. For external tests, the package includes its
// internal tests.
type withTests struct {
	*checker
	pkg *types.Package
}

func (w withTests) Import(path string) (*types.Package, error) {
	if path == w.pkg.Path() {
		return w.pkg, nil
	}
	return w.checker.Import(path)
}

// check type-checks files as one package, and records the exported names that they use.
func (c *checker) check(folder string, imp types.Importer, names []string, kind func(name string) useKind) *types.Package {
	var files []*ast.File
	for _, name := range names {
		name = filepath.Join(root, folder, name)
		if c.parsed[name] == nil {
			f, err := parser.ParseFile(c.fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				c.t.Fatal(err)
			}
			c.parsed[name] = f
		}
		files = append(files, c.parsed[name])
	}
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	conf := types.Config{Importer: imp, Error: func(error) {}} // a name that can't be resolved counts as unused
	pkg, _ := conf.Check(path.Join(module, folder), c.fset, files, info)
	record := func(at, of token.Pos) {
		c.uses[of] = append(c.uses[of], use{folder, kind(filepath.Base(c.fset.Position(at).Filename))})
	}
	for ident, obj := range info.Uses {
		if obj.Exported() && obj.Pos().IsValid() {
			record(ident.Pos(), obj.Pos())
		}
	}
	for sel, s := range info.Selections {
		for _, f := range embedded(s) {
			record(sel.Pos(), f.Pos())
		}
	}
	for _, f := range files {
		for _, d := range f.Decls {
			c.satisfy(d, info)
		}
	}
	return pkg
}

// embedded returns the embedded fields that a selection leaves out, such as B if a.f stands for a.B.f.
func embedded(s *types.Selection) (fields []*types.Var) {
	typ := s.Recv()
	for _, i := range s.Index()[:len(s.Index())-1] {
		if p, ok := typ.Underlying().(*types.Pointer); ok {
			typ = p.Elem()
		}
		f := typ.Underlying().(*types.Struct).Field(i)
		fields, typ = append(fields, f), f.Type()
	}
	return fields
}

// satisfy records T if d declares var _ I = (*T)(nil), with an interface I of another module.
func (c *checker) satisfy(d ast.Decl, info *types.Info) {
	decl, ok := d.(*ast.GenDecl)
	if !ok || decl.Tok != token.VAR {
		return
	}
	for _, spec := range decl.Specs {
		v := spec.(*ast.ValueSpec)
		if v.Names[0].Name != "_" || v.Type == nil || len(v.Values) != 1 || info.Types[v.Type].Type != types.Typ[types.Invalid] {
			continue
		}
		if named := namedOf(info.Types[v.Values[0]].Type); named != nil {
			c.foreign[named.Obj().Pos()] = true
		}
	}
}

// namedOf returns typ if it is a named type, or the named type that typ points to, or nil.
func namedOf(typ types.Type) *types.Named {
	if typ == nil {
		return nil
	}
	if p, ok := types.Unalias(typ).(*types.Pointer); ok {
		typ = p.Elem()
	}
	named, _ := types.Unalias(typ).(*types.Named)
	return named
}

// A name is a name that a public package exports.
type name struct {
	text   string
	folder string // of the package
	obj    types.Object
	of     *types.TypeName // the type to which the method or field belongs, or nil
}

// exported returns the names that the public packages export. Promoted methods and fields count only if the embedded
// type is not public itself.
func (c *checker) exported() (names []name) {
	seen := map[token.Pos]bool{}
	for _, folder := range public {
		pkg := c.loaded[folder].pkg
		add := func(text string, obj types.Object, of *types.TypeName) {
			if obj.Exported() && !seen[obj.Pos()] {
				seen[obj.Pos()] = true
				names = append(names, name{folder + "." + text, folder, obj, of})
			}
		}
		for _, text := range pkg.Scope().Names() {
			obj := pkg.Scope().Lookup(text)
			if !obj.Exported() {
				continue
			}
			add(text, obj, nil)
			if typ, ok := obj.(*types.TypeName); ok {
				for _, m := range c.members(typ.Type()) {
					add(text+"."+m.Name(), m, typ)
				}
			}
		}
	}
	return names
}

// members returns the methods and fields of a type. These include methods and fields that are promoted from embedded
// types, if those types are not public.
func (c *checker) members(typ types.Type) (all []types.Object) {
	named := namedOf(typ)
	if named == nil {
		return nil
	}
	for m := range named.Methods() {
		all = append(all, m)
	}
	switch u := named.Underlying().(type) {
	case *types.Interface:
		for m := range u.Methods() {
			if m.Pkg() != nil && strings.HasPrefix(m.Pkg().Path(), module) {
				all = append(all, m)
			}
		}
	case *types.Struct:
		for f := range u.Fields() {
			all = append(all, f)
			if !f.Embedded() {
				continue
			}
			if e := namedOf(f.Type()); e != nil && e.Obj().Pkg() != nil {
				folder, ours := strings.CutPrefix(e.Obj().Pkg().Path(), module+"/")
				if ours && !(e.Obj().Exported() && slices.Contains(public, folder)) {
					all = append(all, c.members(e)...)
				}
			}
		}
	}
	return all
}

// unused returns the names that are not used.
func (c *checker) unused(names []name) (unused []name) {
	used := map[token.Pos]bool{}
	for _, n := range names {
		if c.isUsed(n) || c.satisfies(n) {
			used[n.obj.Pos()] = true
		}
	}
	for again := true; again; {
		again = false
		need := func(obj types.Object) {
			if !used[obj.Pos()] {
				used[obj.Pos()], again = true, true
			}
		}
		for _, n := range names {
			if !used[n.obj.Pos()] {
				continue
			}
			if n.of != nil {
				need(n.of)
			}
			for _, t := range typesIn(n.obj.Type()) {
				need(t)
			}
		}
	}
	for _, n := range names {
		if !used[n.obj.Pos()] {
			unused = append(unused, n)
		}
	}
	return unused
}

// folderOf returns the folder of the file that contains pos.
func (c *checker) folderOf(pos token.Pos) string {
	folder, err := filepath.Rel(root, filepath.Dir(c.fset.Position(pos).Filename))
	if err != nil {
		c.t.Fatal(err)
	}
	return filepath.ToSlash(folder)
}

// isUsed reports whether the name has a use that counts.
func (c *checker) isUsed(n name) bool {
	own := func(folder string) bool { return folder == n.folder || folder == c.folderOf(n.obj.Pos()) }
	return slices.ContainsFunc(c.uses[n.obj.Pos()], func(u use) bool {
		switch u.kind {
		case inExample:
			return true
		case inTest:
			return !own(u.folder) && slices.Contains(forTests, n.folder)
		}
		return !own(u.folder) || n.of != nil && types.IsInterface(n.of.Type()) // the package calls methods that its users implement
	})
}

// satisfies reports whether the name is a method that an interface requires. The interface may be one that package
// errors uses, or belong to the standard library, this repository or another module.
func (c *checker) satisfies(n name) bool {
	if _, ok := n.obj.(*types.Func); !ok || n.of == nil || types.IsInterface(n.of.Type()) {
		return false
	}
	if c.foreign[n.of.Pos()] || slices.Contains(called, n.obj.Name()) {
		return true
	}
	for _, i := range c.interfaces(n.folder) {
		if m, _, _ := types.LookupFieldOrMethod(i, false, n.obj.Pkg(), n.obj.Name()); m != nil && types.Implements(types.NewPointer(n.of.Type()), i.Underlying().(*types.Interface)) {
			return true
		}
	}
	return false
}

// interfaces returns the interfaces that the methods of the folder's package may be meant to satisfy.
func (c *checker) interfaces(folder string) (all []types.Type) {
	all = append(all, types.Universe.Lookup("error").Type())
	of := func(pkg *types.Package, exported bool) {
		for _, name := range pkg.Scope().Names() {
			obj, ok := pkg.Scope().Lookup(name).(*types.TypeName)
			if !ok || exported && !obj.Exported() {
				continue
			}
			if named := namedOf(obj.Type()); named != nil && named.TypeParams().Len() == 0 && types.IsInterface(named) {
				all = append(all, named)
			}
		}
	}
	for _, p := range append(slices.Clone(c.loaded[folder].dir.Imports), "fmt") {
		if isStandard(p) {
			pkg, err := c.std.Import(p)
			if err != nil {
				c.t.Fatal(err)
			}
			of(pkg, true)
		}
	}
	for f, l := range c.loaded {
		of(l.pkg, f == folder)
	}
	return all
}

// typesIn returns the declared types that occur in a type.
func typesIn(typ types.Type) (all []types.Object) {
	add := func(types ...types.Type) {
		for _, t := range types {
			all = append(all, typesIn(t)...)
		}
	}
	switch t := typ.(type) {
	case *types.Alias:
		all = append(all, t.Obj())
		add(t.Rhs())
	case *types.Named:
		all = append(all, t.Obj())
		for a := range t.TypeArgs().Types() {
			add(a)
		}
	case *types.Map:
		add(t.Key(), t.Elem())
	case *types.Signature:
		for v := range t.Params().Variables() {
			add(v.Type())
		}
		for v := range t.Results().Variables() {
			add(v.Type())
		}
	case interface{ Elem() types.Type }:
		add(t.Elem())
	}
	return all
}
