package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A mark ties lines of a shared file to a part. At the end of a line it ties that line; two marks
// on lines of their own, with braces, tie what stands between them:
//
//	cdcScheme, // part: cdc
//
//	// part: checkouts {
//	…
//	// part: checkouts }
//
// With two names, separated by a space, the lines need both parts. In YAML and shell a mark begins
// with #, in SQL with --, in templates it is {{/* part: name */}}, and in Markdown
// <!-- part: name -->.
var mark = regexp.MustCompile(
	`[ \t]*(?://|--|#|\{\{/\*|<!--) part: ([a-z]+(?: [a-z]+)*)( [{}])?(?: \*/\}\}| -->)?[ \t]*$`)

// starterMark is the part of what must be in no starter, such as the CI step that makes starters.
const starterMark = "starter"

// cut removes the marked lines of the parts that are not kept, and the marks of the others, which a service of one's
// own has no use for.
func cut(text []byte, keeps func(part string) bool) ([]byte, error) {
	if !bytes.Contains(text, []byte("part: ")) {
		return text, nil
	}
	var out []string
	var open []string // the blocks that the line is in
	removing := 0     // how many of them are removed
	for n, line := range strings.Split(string(text), "\n") {
		var m []int
		if strings.Contains(line, " part: ") { // the expression costs a hundred times as much
			m = mark.FindStringSubmatchIndex(line)
		}
		if m == nil {
			if removing == 0 {
				out = append(out, line)
			}
			continue
		}
		names, brace := line[m[2]:m[3]], ""
		if m[4] >= 0 {
			brace = strings.TrimSpace(line[m[4]:m[5]])
		}
		kept := !slices.ContainsFunc(strings.Fields(names), func(name string) bool { return !keeps(name) })
		switch brace {
		case "{":
			open = append(open, names)
			if !kept {
				removing++
			}
		case "}":
			if len(open) == 0 || open[len(open)-1] != names {
				return nil, fmt.Errorf("line %d ends a block %q that did not begin", n+1, names)
			}
			open = open[:len(open)-1]
			if !kept {
				removing--
			}
		default:
			if kept && removing == 0 {
				out = append(out, line[:m[0]])
			}
		}
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("the block %q has no end", open[len(open)-1])
	}
	return []byte(strings.Join(out, "\n")), nil
}

// marksOf returns the parts that a file's marks name.
func marksOf(text []byte) (names []string) {
	for line := range strings.SplitSeq(string(text), "\n") {
		if !strings.Contains(line, " part: ") {
			continue
		}
		if m := mark.FindStringSubmatch(line); m != nil {
			names = append(names, strings.Fields(m[1])...)
		}
	}
	return names
}
