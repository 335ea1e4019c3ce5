package operator

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"example.com/payonce/db"
	"example.com/payonce/internal/idempotency"
	"example.com/payonce/internal/payments"
)

// frame is what every page has around its own.
type frame struct {
	Title   string
	Styles  string
	Actor   string // who is signed in; empty: nobody
	CSRF    string
	MayAct  bool
	Locked  bool      // a token is configured
	At      time.Time // when the page was made
	Page    any
	Current string
}

func (s *Server) render(w http.ResponseWriter, r *http.Request, status int, name, title string, page any) {
	f := frame{Title: title, Styles: s.styles, At: s.now().UTC(), Page: page, Locked: s.keys.configured(), Current: name}
	if who, ok := sessionOf(r); ok {
		f.Actor, f.CSRF, f.MayAct = who.Actor, s.keys.csrfToken(who), true
	}
	var b bytes.Buffer
	if err := pages[name].ExecuteTemplate(&b, "layout.html", f); err != nil {
		panic(fmt.Sprintf("bug: page %s: %v", name, err))
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

var pages = parsePages()

func parsePages() map[string]*template.Template {
	files, err := fs.Glob(pageFiles, "pages/*.html")
	if err != nil {
		panic(err)
	}
	list := map[string]*template.Template{}
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if name != "layout" && name != "parts" {
			list[name] = template.Must(template.New("layout.html").Funcs(functions).ParseFS(pageFiles, "pages/layout.html", "pages/parts.html", file))
		}
	}
	return list
}

var functions = template.FuncMap{
	"amount":   payments.Amount,
	"clock":    clock,
	"date":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" },
	"span":     span,
	"seconds":  func(n float64) string { return span(time.Duration(n * float64(time.Second))) },
	"since":    func(now, t time.Time) string { return span(now.Sub(t)) },
	"text":     text,
	"plural":   plural,
	"verb":     verb,
	"what":     operationInWords,
	"point":    pointInWords,
	"act":      with,
	"query":    queryEscape,
	"lines":    func(s string) string { first, _, _ := strings.Cut(s, "\n"); return first },
	"sentence": sentence,
	"hash":     idempotency.HashForLog,
	"ours":     isAnObject,
	"finding":  findingInWords,
	"whynot":   whyNot,
	"outcome":  outcomeOf,
	"pair":     func(frame frame, item any) pair { return pair{frame, item} },
}

// pair gives a part of a page its item and the frame.
type pair struct {
	Frame frame
	Item  any
}

// with is the address of an action's form.
func with(kind db.OperatorActionKind, tenant, id, of string) string {
	return target{Kind: kind, Tenant: tenant, ID: id, Of: of}.href()
}

func queryEscape(s string) string { return url.QueryEscape(s) }

// text is what a nullable column says.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case *string:
		if v != nil {
			return *v
		}
	case *int16:
		if v != nil {
			return fmt.Sprint(*v)
		}
	case string:
		return v
	default:
		return fmt.Sprint(v)
	}
	return ""
}

// sentence makes one of what may begin in small letters and has no full stop. An
// id stays as it is.
func sentence(s string) string {
	if word, _, _ := strings.Cut(s, " "); strings.Contains(word, "_") {
		return s + "."
	}
	first, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[size:] + "."
}

// clock is a time near now.
func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// span is a duration as people say it.
func span(d time.Duration) string {
	if d < 0 {
		d = 0
	}
	switch {
	case d < 2*time.Second:
		return "a moment"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}

func plural(n any, one, many string) string {
	if fmt.Sprint(n) == "1" {
		return "1 " + one
	}
	return fmt.Sprint(n) + " " + many
}

// verb is what an action does to its subject, as its button says it.
func verb(k db.OperatorActionKind, subject string) string {
	switch k {
	case db.OperatorActionKindTryNow:
		return "Try now"
	case db.OperatorActionKindAdopt:
		return "Adopt"
	case db.OperatorActionKindRefund:
		if strings.HasPrefix(subject, "pi_") {
			return "Give back"
		}
		return "Refund"
	case db.OperatorActionKindUnpark:
		if strings.HasPrefix(subject, "ten_") {
			return "Send again"
		}
		return "Unpark"
	case db.OperatorActionKindMarkFailed:
		return "Mark failed"
	}
	return string(k)
}

// operationInWords is what a key asked for.
func operationInWords(operation string) string {
	switch operation {
	case payments.CreateOrder:
		return "An order"
	case payments.CancelOrder:
		return "The cancel of an order"
	case payments.CreatePayment:
		return "A payment"
	case payments.CancelPayment:
		return "The cancel of a payment"
	case payments.CreateRefund, payments.RefundOrder, payments.RefundByOperator:
		return "A refund"
	case payments.RefundGhost:
		return "The refund of money that no payment has"
	case payments.CreateCheckout:
		return "A checkout"
	case payments.SweepIntent:
		return "The cancel of an abandoned PaymentIntent"
	}
	return operation
}

// findingInWords is what kind of disagreement it is.
func findingInWords(kind db.DiscrepancyKind) string {
	switch kind {
	case db.DiscrepancyKindUnmatchedAtStripe:
		return "Money at Stripe that is not here"
	case db.DiscrepancyKindMissingAtStripe:
		return "Money here that is not at Stripe"
	case db.DiscrepancyKindAmountMismatch:
		return "Another amount at Stripe"
	case db.DiscrepancyKindStatusMismatch:
		return "Another state at Stripe"
	}
	return string(kind)
}

// pointInWords says what a recovery point means for the money.
func pointInWords(point string) string {
	switch point {
	case "payment_recorded", "checkout_recorded", "order_created", "stock_reserved":
		return "no money can have moved"
	case "intent_recorded":
		return "the money may have moved"
	case "action_required":
		return "the customer is at their bank"
	case "refund_recorded", "refund_begun", "ghost_refund_begun":
		return "the money may have gone back"
	case "refund_owed":
		return "Stripe does not refund it: the customer is owed money"
	}
	return ""
}
