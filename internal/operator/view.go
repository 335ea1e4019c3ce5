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
	"example.com/payonce/internal/checkout" // part: checkouts
	"example.com/payonce/internal/money"
	"example.com/payonce/internal/payments"
)

// frame is the data of the layout, and within it the page's own.
type frame struct {
	Title   string
	Styles  string
	Actor   string // of the session; empty if not signed in
	CSRF    string
	MayAct  bool
	Locked  bool      // ADMIN_TOKEN is set
	At      time.Time // when the page was rendered
	Page    any
	Current string
}

// render writes a page. A template error is a bug, because the templates are part of the
// binary; guarded turns it into an error page.
func (s *Server) render(w http.ResponseWriter, r *http.Request, status int, name, title string, page any) {
	f := frame{
		Title: title, Styles: s.styles, At: s.now().UTC(), Page: page,
		Locked: s.keys.configured(), Current: name,
	}
	if current, ok := sessionOf(r); ok {
		f.Actor, f.CSRF, f.MayAct = current.Actor, s.keys.csrfToken(current), true
	}
	var b bytes.Buffer // so that a template that fails halfway sends no half page with status 200
	if err := pages[name].ExecuteTemplate(&b, "layout.html", f); err != nil {
		panic(fmt.Sprintf("bug: page %s: %v", name, err))
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// pages are parsed at start, so that a broken template fails every test and not one page.
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
			list[name] = template.Must(template.New("layout.html").Funcs(functions).
				ParseFS(pageFiles, "pages/layout.html", "pages/parts.html", file))
		}
	}
	return list
}

var functions = template.FuncMap{
	"actionHref":  actionHref,
	"actionLabel": actionLabel,
	"amount":      money.Format,
	"checkError":  checkErrorText,
	"clock":       clock,
	"date":        func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" },
	"advice":      discrepancyAdvice,
	"discrepancy": discrepancyLabel,
	"errorLabel":  errorLabel,
	"firstLine":   func(s string) string { first, _, _ := strings.Cut(s, "\n"); return first },
	"isObjectID":  isObjectID,
	"operation":   operationLabel,
	"outcome":     outcomeOf,
	"pair":        func(frame frame, item any) pair { return pair{frame, item} },
	"plural":      plural,
	"seconds":     func(n float64) string { return span(time.Duration(n * float64(time.Second))) },
	"sentence":    sentence,
	"since":       func(now, t time.Time) string { return span(now.Sub(t)) },
	"text":        text,
}

// pair gives a template an item and the frame, because a template takes one argument.
type pair struct {
	Frame frame
	Item  any
}

// actionHref is the address of an action's form.
func actionHref(kind db.OperatorActionKind, tenant, id, of string) string {
	return target{Kind: kind, Tenant: tenant, ID: id, Of: of}.href()
}

// queryEscape escapes a value in an address.
func queryEscape(s string) string { return url.QueryEscape(s) }

// text is the value of a nullable column; empty for null.
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

// sentence capitalizes an error text and adds a full stop. If it starts with an id, the
// id stays as it is, because an id with a capital letter cannot be searched for.
func sentence(s string) string {
	if word, _, _ := strings.Cut(s, " "); strings.Contains(word, "_") {
		return s + "."
	}
	first, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[size:] + "."
}

// errorLabel is the label of why a request was not finished. A customer who must act is no error.
func errorLabel(why string) string {
	if why == payments.CustomerMustAct {
		return "Waits because"
	}
	return "Last error"
}

// clock is a time of today.
func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

// span is a duration, rounded to what matters for it.
func span(d time.Duration) string {
	if d < 0 { // The database's clock and this process's may differ a little.
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

// plural takes any integer type, because the generated queries return several.
func plural(n any, one, many string) string {
	if fmt.Sprint(n) == "1" {
		return "1 " + one
	}
	return fmt.Sprint(n) + " " + many
}

// actionLabel is the name of an action, as on its button.
func actionLabel(k db.OperatorActionKind, subject string) string {
	switch k {
	case db.OperatorActionKindTryNow:
		return "Retry now"
	case db.OperatorActionKindAdopt:
		return "Adopt"
	case db.OperatorActionKindRefund:
		if strings.HasPrefix(subject, "pi_") {
			return "Refund at Stripe"
		}
		return "Refund"
	case db.OperatorActionKindUnpark:
		if strings.HasPrefix(subject, "ten_") {
			return "Resend"
		}
		return "Unpark"
	case db.OperatorActionKindMarkFailed:
		return "Mark failed"
	case db.OperatorActionKindSettleOutside:
		return "Settled outside"
	}
	return string(k)
}

// operationLabel is the name of an operation.
func operationLabel(operation string) string {
	switch operation {
	case payments.CreateOrder:
		return "Order"
	case payments.CancelOrder:
		return "Cancellation of an order"
	case payments.CreatePayment:
		return "Payment"
	case payments.CancelPayment:
		return "Cancellation of a payment"
	case payments.CapturePayment:
		return "Capture"
	case payments.CreateRefund, payments.RefundOrder, payments.RefundByOperator:
		return "Refund"
	case payments.RefundOrphanedIntent:
		return "Refund of an unmatched charge"
	// part: checkouts {
	case checkout.Create:
		return "Checkout"
	// part: checkouts }
	case payments.CancelAbandonedIntent:
		return "Cancellation of an abandoned PaymentIntent"
	}
	return operation
}

// discrepancyLabel is the name of a kind of discrepancy.
func discrepancyLabel(kind db.DiscrepancyKind) string {
	switch kind {
	case db.DiscrepancyKindUnmatchedAtStripe:
		return "Unmatched at Stripe"
	case db.DiscrepancyKindMissingAtStripe:
		return "Missing at Stripe"
	case db.DiscrepancyKindAmountMismatch:
		return "Amount mismatch"
	case db.DiscrepancyKindStatusMismatch:
		return "Status mismatch"
	}
	return string(kind)
}

// discrepancyAdvice says what to do about a discrepancy.
func discrepancyAdvice(kind db.DiscrepancyKind) string {
	switch kind {
	case db.DiscrepancyKindUnmatchedAtStripe:
		return "this charge could not be matched to an order. Adopt it (record it as a payment) if that has " +
			"become possible; otherwise refund it, or fulfil the order by hand."
	case db.DiscrepancyKindMissingAtStripe:
		return "Stripe does not have what this database has. Check that STRIPE_SECRET_KEY is of the right " +
			"account and mode."
	case db.DiscrepancyKindAmountMismatch:
		return "the amounts differ. Look at both at Stripe, and record the difference in your books."
	case db.DiscrepancyKindStatusMismatch:
		return "the states differ. Look at it in Stripe’s dashboard."
	}
	return ""
}
