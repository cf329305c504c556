package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
)

// A change replaces one text in a file, as a classic mutation operator does.
type change struct {
	file       string // relative to the module's root, with slashes
	line       int
	start, end int // of the old text
	text       string
	what       string // for people: "delete the statement"
}

// changes returns all changes that the operators can make to a file, in file order. It leaves out changes that no
// test should notice: log records, the text of errors and panics, the capacity of a slice or map, and a deferred
// Stop of a timer.
func changes(file, src string) ([]change, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	o := &operators{file: file, src: src, tok: fset.File(f.FileStart)}
	for _, d := range f.Decls {
		o.walk(d, nil)
	}
	slices.SortStableFunc(o.all, func(a, b change) int { return a.start - b.start })
	return o.all, nil
}

type operators struct {
	file string
	src  string
	tok  *token.File
	all  []change
}

// replace records that the text from start to end can be replaced.
func (o *operators) replace(start, end token.Pos, text, what string) {
	o.all = append(o.all, change{
		file: o.file, line: o.tok.Line(start),
		start: o.tok.Offset(start), end: o.tok.Offset(end), text: text, what: what,
	})
}

func (o *operators) text(n ast.Node) string {
	return o.src[o.tok.Offset(n.Pos()):o.tok.Offset(n.End())]
}

// walk records the changes for n and everything in it. f is the type of the function around n.
func (o *operators) walk(n ast.Node, f *ast.FuncType) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				o.walk(n.Body, n.Type)
			}
			return false
		case *ast.FuncLit:
			o.walk(n.Body, n.Type)
			return false
		case *ast.GenDecl:
			return n.Tok != token.IMPORT
		case *ast.Field:
			return false // a type
		case *ast.BlockStmt:
			o.deletes(n.List)
		case *ast.CaseClause:
			o.deletes(n.Body)
		case *ast.CommClause:
			o.deletes(n.Body)
		case *ast.SwitchStmt:
			o.drops(n.Body)
		case *ast.SelectStmt:
			o.drops(n.Body)
		case *ast.IfStmt:
			o.negate(n.Cond)
			if n.Else != nil {
				o.replace(n.Body.End(), n.Else.End(), "", "drop the else")
			}
		case *ast.ForStmt:
			if n.Cond != nil {
				o.negate(n.Cond)
			}
		case *ast.ReturnStmt:
			o.returns(n, f)
		case *ast.AssignStmt:
			o.swap(n.TokPos, n.Tok)
		case *ast.IncDecStmt:
			o.swap(n.TokPos, n.Tok)
		case *ast.BinaryExpr:
			if n.Op != token.ADD || !isString(n.X) && !isString(n.Y) {
				o.swap(n.OpPos, n.Op)
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				o.replace(n.OpPos, n.X.Pos(), "", "drop the negation")
			}
		case *ast.CallExpr:
			return !unseen(n)
		case *ast.Ident:
			if other := map[string]string{"true": "false", "false": "true", "min": "max", "max": "min"}[n.Name]; other != "" {
				o.replace(n.Pos(), n.End(), other, n.Name+" becomes "+other)
			}
		case *ast.BasicLit:
			o.number(n)
		}
		return true
	})
}

// swaps maps an operator to its replacements. For a comparison, the replacements move its boundary or
// negate it.
var swaps = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD},
	token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.QUO},
	token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN},
	token.INC: {token.DEC}, token.DEC: {token.INC},
}

func (o *operators) swap(at token.Pos, t token.Token) {
	for _, other := range swaps[t] {
		o.replace(at, at+token.Pos(len(t.String())), other.String(), t.String()+" becomes "+other.String())
	}
}

// negate negates a condition, unless swapping its operator or dropping its ! has the same effect.
func (o *operators) negate(cond ast.Expr) {
	if !negated(cond) {
		o.replace(cond.Pos(), cond.End(), "!("+o.text(cond)+")", "negate the condition")
	}
}

// negated reports whether x is already negated by another change.
func negated(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "true" || x.Name == "false"
	case *ast.UnaryExpr:
		return x.Op == token.NOT
	case *ast.BinaryExpr:
		return x.Op != token.LAND && x.Op != token.LOR
	}
	return false
}

// deletes records the statements that can be deleted.
func (o *operators) deletes(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || o.text(s.Lhs[0]) == "_" {
				continue
			}
		case *ast.ExprStmt:
			if c, ok := s.X.(*ast.CallExpr); ok && unseen(c) && name(c) != "panic" {
				continue
			}
		case *ast.DeferStmt:
			if name(s.Call) == "Stop" {
				continue
			}
		case *ast.ReturnStmt:
			if len(s.Results) > 0 {
				continue
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt, *ast.BranchStmt:
		default:
			continue
		}
		o.replace(s.Pos(), s.End(), "", "delete the statement")
	}
}

// drops records the cases of a switch or select that can be dropped.
func (o *operators) drops(body *ast.BlockStmt) {
	for _, c := range body.List {
		if len(body.List) > 1 {
			o.replace(c.Pos(), c.End(), "", "drop the case")
		}
	}
}

// returns records that a function may return other results of the same types.
func (o *operators) returns(r *ast.ReturnStmt, f *ast.FuncType) {
	var types []string
	if f != nil && f.Results != nil {
		for _, field := range f.Results.List {
			for range max(1, len(field.Names)) {
				types = append(types, o.text(field.Type))
			}
		}
	}
	if len(types) != len(r.Results) {
		return // a bare return, or the results of another call
	}
	for i, x := range r.Results {
		old, text := o.text(x), ""
		switch types[i] {
		case "error":
			text = "nil"
		case "bool":
			if !negated(x) {
				text = "!(" + old + ")"
			}
		case "int", "int64", "uint64", "time.Duration":
			text = "0"
		case "string":
			text = `""`
		}
		if _, literal := x.(*ast.BasicLit); text != "" && text != old && !literal {
			o.replace(x.Pos(), x.End(), text, "return "+text)
		}
	}
}

// number records that a constant may be doubled or halved. Adding or subtracting 1 would seldom break
// anything.
func (o *operators) number(n *ast.BasicLit) {
	if n.Kind != token.INT && n.Kind != token.FLOAT {
		return
	}
	texts := []string{"(2*" + n.Value + ")", "(" + n.Value + "/2)"}
	switch i, err := strconv.ParseInt(n.Value, 0, 64); {
	case err == nil && i == 0:
		texts = []string{"1"}
	case err == nil && i == 1:
		texts = []string{"0", "2"}
	}
	for _, text := range texts {
		o.replace(n.Pos(), n.End(), text, n.Value+" becomes "+text)
	}
}

// unseen reports whether the arguments of a call are only a capacity or text for people, which no test should
// check.
func unseen(c *ast.CallExpr) bool {
	switch name(c) {
	case "panic", "warn", "info", "record", "Gosched",
		"Debug", "Info", "Warn", "Error", "Log", "DebugContext", "InfoContext", "WarnContext", "ErrorContext":
		return true
	case "make":
		_, isChan := c.Args[0].(*ast.ChanType)
		return !isChan
	case "New", "Errorf", "Sprintf", "Sprint", "Fprintf", "Fprintln", "Printf", "Println":
		s, ok := c.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, ok := s.X.(*ast.Ident)
		return ok && (pkg.Name == "fmt" || pkg.Name == "errors")
	}
	return false
}

// name returns the name of the function or method that c calls.
func name(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func isString(x ast.Expr) bool {
	b, ok := x.(*ast.BasicLit)
	return ok && b.Kind == token.STRING
}
