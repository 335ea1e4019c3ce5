package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// withoutUnusedImports removes the imports that only cut lines used, so that they need no mark. It
// touches those of the standard library and of this module only: the name of any other package
// cannot be told from its path.
func withoutUnusedImports(text []byte) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				used[x.Name] = true
			}
		}
		return true
	})
	lines := strings.Split(string(text), "\n")
	var unused []int
	for _, spec := range file.Imports {
		from, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		name := packageName(from)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		first, _, _ := strings.Cut(from, "/")
		theirs := strings.Contains(first, ".") && !strings.HasPrefix(from, ours)
		if !theirs && name != "_" && name != "." && !used[name] {
			unused = append(unused, files.Position(spec.Pos()).Line)
		}
	}
	slices.Sort(unused)
	for _, n := range slices.Backward(unused) {
		lines = slices.Delete(lines, n-1, n)
	}
	return []byte(strings.Join(lines, "\n")), nil
}

// packageName is the last element of a path that is no version.
func packageName(from string) string {
	name := path.Base(from)
	if len(name) > 1 && name[0] == 'v' && name[1] >= '0' && name[1] <= '9' {
		name = path.Base(path.Dir(from))
	}
	return name
}
