// Package cards recognizes card numbers in text, so that one that is sent by mistake is
// refused before it is stored, logged or passed on. A service that keeps a single card
// number is in the scope of PCI DSS.
//
// Luhn's check alone would not do: of all numbers one in ten passes it, also of the
// timestamps, article numbers and ids that an honest client sends. What is refused looks
// like a card in each of four ways: its length and first digits are those of a brand,
// Luhn's check passes, its digits stand together, in the groups that are printed on cards
// or alone in the text, and they are no part of an identifier that mixes letters and digits.
package cards

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// NumberIn reports whether a text contains what looks like the number of a card. It does
// not see one whose digits are in an unusual script, in odd groups among other words, or in several fields.
func NumberIn(text string) bool {
	if !Possible(text) {
		return false
	}
	var (
		groups  []group                      // with no more than a separator between them
		all     = make([]group, 0, aloneMax) // of the text, while it has nothing but digits and separators; then nil
		between int                          // characters since the last group
	)
	for i := 0; i < len(text); {
		if !alphanumeric(text[i]) {
			r, size := utf8.DecodeRuneInString(text[i:])
			letter := unicode.IsLetter(r) || unicode.IsDigit(r)
			if between++; letter || between > separatorsMax {
				groups = nil
			}
			if letter {
				all = nil
			}
			i += size
			continue
		}
		if n := uuidAt(text, i); n > 0 {
			groups, all, between = nil, nil, 0
			i += n
			continue
		}
		word := wordOf(text[i:])
		digits, before, after := onlyDigits(word)
		g := group{digits, i > 0 && text[i-1] == '+'}
		if digits == "" || before {
			groups = nil
		}
		groups = append(groups, g)
		for from := max(0, len(groups)-groupsMax); from < len(groups); from++ {
			if isCard(groups[from:]) {
				return true
			}
		}
		if digits == "" || after {
			groups = nil
		}
		if digits != word || len(all) == aloneMax {
			all = nil
		}
		if all != nil {
			all = append(all, g)
		}
		between = 0
		i += len(word)
	}
	return aloneIsCard(all)
}

// uuidAt is the length of the UUID that begins at i, or 0. A UUID is an identifier, as clients choose it for keys: in about one
// random UUID in a million, digits of its groups look like a card in the groups of four that are printed. A UUID without
// any letter, one in fifty million, is read like other text.
func uuidAt(text string, i int) int {
	const length = len("00000000-0000-0000-0000-000000000000")
	if len(text)-i < length || i > 0 && alphanumeric(text[i-1]) || len(text)-i > length && alphanumeric(text[i+length]) {
		return 0
	}
	letters := false
	for at := range length {
		c := text[i+at]
		switch {
		case at == 8 || at == 13 || at == 18 || at == 23:
			if c != '-' {
				return 0
			}
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			letters = true
		case !digit(c):
			return 0
		}
	}
	if !letters {
		return 0
	}
	return length
}

// NumberInID reports whether an id, of letters and digits as others make them up, contains the number of a card, also
// one with letters beside it. Of ids of base 62 none does by chance; of hashes in hexadecimal one in three thousand would.
func NumberInID(id string) bool {
	for i := 0; i < len(id); {
		n := 0
		for i+n < len(id) && digit(id[i+n]) {
			n++
		}
		if IsNumber(id[i : i+n]) {
			return true
		}
		i += max(n, 1)
	}
	return NumberIn(id)
}

const (
	lengthMin     = 13
	lengthMax     = 19
	groupsMax     = 5 // 4242 4242 4242 4242 424
	aloneMax      = 4 // groups of a number that is the whole text, 4242 42424242 4242
	aloneLength   = 3 // digits that each of them has
	separatorsMax = 3 // characters between two groups, such as " - "
	phoneMax      = 15
)

// group is digits that stand together.
type group struct {
	digits string
	plus   bool // They have a plus before them, as telephone numbers do, of up to fifteen digits (E.164).
}

// Possible is a fast check for texts of which most contain no long number: whatever
// contains a card number has as many digits with no letter and no quote between them.
func Possible[T string | []byte](text T) bool {
	n := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			if n++; n >= lengthMin {
				return true
			}
		case c == '\\': // of JSON: any character may stand behind it
			return true
		case c == '"' || c|0x20 >= 'a' && c|0x20 <= 'z':
			n = 0
		}
	}
	return false
}

func alphanumeric(b byte) bool { return digit(b) || b|0x20 >= 'a' && b|0x20 <= 'z' }

func digit(b byte) bool { return b >= '0' && b <= '9' }

func wordOf(text string) string {
	n := 0
	for n < len(text) && alphanumeric(text[n]) {
		n++
	}
	return text[:n]
}

// onlyDigits returns the digits of a word that has them in one place, and whether letters
// stand before or after them: "card4242424242424242" is a card. A word with digits in
// several places is an identifier, such as a hash, and has none.
func onlyDigits(word string) (digits string, before, after bool) {
	start := 0
	for start < len(word) && !digit(word[start]) {
		start++
	}
	end := start
	for end < len(word) && digit(word[end]) {
		end++
	}
	for _, b := range []byte(word[end:]) {
		if digit(b) {
			return "", false, false
		}
	}
	return word[start:end], start > 0, end < len(word)
}

// layouts are the groups in which the numbers of cards are printed and typed.
var layouts = [][]int{
	{4, 4, 4, 4}, {4, 4, 4, 4, 3}, // most brands
	{4, 6, 5}, {4, 6, 4}, // American Express, Diners Club
	{4, 4, 4, 3}, {4, 4, 4, 2}, // the same, as they are typed
	{6, 13}, {4, 3, 3, 3}, // UnionPay, old Visa cards
}

func isCard(groups []group) bool {
	if first := len(groups[0].digits); len(groups) > 1 && first != 4 && first != 6 { // as every layout begins
		return false
	}
	if len(groups) > 1 && !slices.ContainsFunc(layouts, func(layout []int) bool { return isPrinted(groups, layout) }) {
		return false
	}
	return isNumber(join(groups), groups[0].plus)
}

func isPrinted(groups []group, layout []int) bool {
	if len(groups) != len(layout) {
		return false
	}
	for i, g := range groups {
		if len(g.digits) != layout[i] {
			return false
		}
	}
	return true
}

func isNumber(digits string, plus bool) bool {
	return IsNumber(digits) && (!plus || len(digits) > phoneMax)
}

// aloneIsCard reports whether the groups of a text that has nothing else are a card, whatever their lengths are. Many
// or short ones are a list: sizes, prices.
func aloneIsCard(groups []group) bool {
	if len(groups) == 0 {
		return false
	}
	for _, g := range groups {
		if len(g.digits) < aloneLength {
			return false
		}
	}
	return isNumber(join(groups), groups[0].plus)
}

// join returns the digits of the groups. Of too many digits it returns nothing.
func join(groups []group) string {
	var digits [lengthMax]byte
	n := 0
	for _, g := range groups {
		if n+len(g.digits) > lengthMax {
			return ""
		}
		n += copy(digits[n:], g.digits)
	}
	return string(digits[:n])
}

// brands are the numbers that are issued: first digits from..to, and how many there are.
var brands = []struct {
	name     string
	from, to string
	lengths  []int
}{
	{"Visa", "4", "4", []int{13, 16, 19}},
	{"Mastercard", "51", "55", []int{16}},
	{"Mastercard", "2221", "2720", []int{16}},
	{"American Express", "34", "34", []int{15}},
	{"American Express", "37", "37", []int{15}},
	{"Discover", "6011", "6011", []int{16, 19}},
	{"Discover", "644", "649", []int{16, 19}},
	{"Discover", "65", "65", []int{16, 19}},
	{"Diners Club", "300", "305", []int{14, 16, 19}},
	{"Diners Club", "3095", "3095", []int{14, 16, 19}},
	{"Diners Club", "36", "36", []int{14, 16, 19}},
	{"Diners Club", "38", "39", []int{14, 16, 19}},
	{"JCB", "3528", "3589", []int{16}}, // Numbers of 19 digits are possible, but some networks' ids begin so.
	{"UnionPay", "62", "62", []int{16, 17, 18, 19}},
	{"UnionPay", "81", "81", []int{16, 17, 18, 19}},
	{"Mir", "2200", "2204", []int{16}},
	{"Troy", "9792", "9792", []int{16}},
	{"Verve", "506099", "506198", []int{16, 18, 19}},
	{"RuPay", "508500", "508999", []int{16}},
	{"RuPay", "606985", "608500", []int{16}},
	{"Maestro", "5018", "5018", []int{13, 14, 15, 16, 17, 18, 19}},
	{"Maestro", "5020", "5020", []int{13, 14, 15, 16, 17, 18, 19}},
	{"Maestro", "5038", "5038", []int{13, 14, 15, 16, 17, 18, 19}},
	{"Maestro", "5893", "5893", []int{13, 14, 15, 16, 17, 18, 19}},
	{"Maestro", "6304", "6304", []int{13, 14, 15, 16, 17, 18, 19}},
	{"Maestro", "6759", "6763", []int{13, 14, 15, 16, 17, 18, 19}},
}

// IsNumber reports whether digits, and nothing else, are the number of a card.
func IsNumber(digits string) bool {
	if len(digits) < lengthMin || len(digits) > lengthMax || !luhn(digits) || isGTIN(digits) {
		return false
	}
	for _, b := range brands {
		if first := digits[:len(b.from)]; first < b.from || first > b.to {
			continue
		}
		for _, n := range b.lengths {
			if n == len(digits) {
				return true
			}
		}
	}
	return false
}

func luhn(digits string) bool {
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// isGTIN reports whether 13 or 14 digits are an article number. Those of German articles
// begin with 4, as Visa's cards do, and no more than one card of that length in ten has
// the check digit of an article; cards of 13 digits are not issued any more.
func isGTIN(digits string) bool {
	if len(digits) > 14 {
		return false
	}
	sum := 0
	for i := range len(digits) {
		d := int(digits[len(digits)-1-i] - '0')
		if i%2 == 1 {
			d *= 3
		}
		sum += d
	}
	return sum%10 == 0
}
