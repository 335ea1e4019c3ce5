package http

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decoding is strict, and the form is validated completely before a key is claimed, so
// that a client can correct a mistake and use the same key. Whether an order exists or can
// be paid is not checked here but by the operation, in the transaction that depends on it.

// bodyMax limits what one request makes the service read and decode before it is refused.
const bodyMax = 64 << 10

// bodyExpected limits the memory that is reserved before a body arrives: a client may
// announce any length and send nothing.
const bodyExpected = 16 << 10

// readBody reads the whole body, up to most bytes. A truncated body is an error: the
// first half of a request must never be executed as a request.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	body := bytes.NewBuffer(make([]byte, 0, bytes.MinRead+min(max(r.ContentLength, 0), bodyExpected)))
	var err error = &http.MaxBytesError{Limit: most}
	if r.ContentLength <= most { // Otherwise it is refused without reading it.
		_, err = body.ReadFrom(http.MaxBytesReader(w, r.Body, most))
	}
	var (
		over    *http.MaxBytesError
		refused *problem
	)
	switch {
	case errors.As(err, &refused):
		return nil, refused
	case errors.As(err, &over):
		return nil, &problem{
			code: codePayloadTooLarge, detail: fmt.Sprintf("The body may have at most %d bytes.", most),
		}
	case err != nil:
		return nil, &problem{
			code: codeInvalidRequest, detail: "The body ended before it was complete.",
			errors: []fieldError{{Message: "ended before it was complete"}},
		}
	}
	visitOf(r).bodyRead = true
	return body.Bytes(), nil
}

// checkMediaType refuses a body that is not declared as JSON, because its bytes may mean
// something else. Of a request without a body it means nothing: many clients name a type with every POST.
func checkMediaType(r *http.Request, body []byte) error {
	if len(body) == 0 {
		return nil
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return &problem{
			code: codeUnsupportedMediaType, detail: "Send the body as it is, without a Content-Encoding such as gzip.",
		}
	}
	header := r.Header.Get("Content-Type")
	if header == contentJSON {
		return nil
	}
	media, params, err := mime.ParseMediaType(header)
	charset, ok := params["charset"]
	if err != nil || media != contentJSON || ok && !strings.EqualFold(charset, "utf-8") {
		return &problem{code: codeUnsupportedMediaType, detail: "Send the body as application/json."}
	}
	return nil
}

// decodeObject is decode for a body that must be an object. JSON's null would otherwise pass as an object without members.
// Nor does a null pass as an absent member, unless the member's field has the tag nullable:"true":
// JSON.stringify({amount: NaN}) is {"amount":null}, and a refund without an amount is one of everything.
func decodeObject(body []byte, into any) error {
	if string(bytes.TrimSpace(body)) == "null" {
		return invalidBody([]fieldError{{Message: "must be an object"}})
	}
	if err := decode(body, into); err != nil || !bytes.Contains(body, []byte("null")) {
		return err
	}
	var c checks
	nullable := nullableMembers(into)
	for tokens := jsontext.NewDecoder(bytes.NewReader(body)); ; {
		token, err := tokens.ReadToken()
		if err != nil { // the end: it was decoded before
			return c.err()
		}
		if at := string(tokens.StackPointer()); token.Kind() == 'n' && !nullable[at] {
			c.fail(at, "%s", errNull)
		}
	}
}

// nullableMembers are the pointers to the members of a request that may be null. The values of a member that is an object
// without fields of its own are checked where they are read.
func nullableMembers(into any) map[string]bool {
	nullable := map[string]bool{}
	for t, i := reflect.TypeOf(into).Elem(), 0; t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		if f := t.Field(i); f.Tag.Get("nullable") == "true" {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			nullable[pointer(name)] = true
		}
	}
	return nullable
}

// decode reads a request strictly: an unknown or duplicate member may be a typing error
// in an amount, and a lenient decoder would charge something else. The library reports
// the place of the first mistake.
func decode(body []byte, into any) error {
	err := json.Unmarshal(body, into, json.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	var (
		semantic  *json.SemanticError
		syntactic *jsontext.SyntacticError
		at        fieldError
	)
	switch {
	case errors.As(err, &semantic):
		at = fieldError{Pointer: string(semantic.JSONPointer), Message: "has the wrong type"}
		if errors.Is(err, json.ErrUnknownName) {
			at.Message = "is not a member of this object"
		} else if errors.Is(err, errNull) {
			at.Message = errNull.Error()
		}
	case errors.As(err, &syntactic) && errors.Is(err, jsontext.ErrDuplicateName):
		at = fieldError{Pointer: string(syntactic.JSONPointer), Message: "is given twice"}
	case errors.As(err, &syntactic):
		at = fieldError{Pointer: string(syntactic.JSONPointer), Message: "is not valid JSON"}
	default:
		at = fieldError{Message: "is not valid JSON"}
	}
	return invalidBody([]fieldError{at})
}

var errNull = errors.New("must not be null")

const invalidBodyDetail = "The request body is not valid."

func invalidBody(list []fieldError) error {
	return &problem{code: codeInvalidRequest, detail: invalidBodyDetail, errors: list}
}

// checks collects the mistakes in a body, so that the caller can correct them at once, up to checksMax: a body can have
// thousands.
type checks []fieldError

const checksMax = 50

func (c *checks) fail(pointer, format string, args ...any) {
	if len(*c) == checksMax {
		return
	}
	*c = append(*c, fieldError{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
}

// text checks a string's length in characters, and for U+0000, which PostgreSQL cannot
// store in a text.
func (c *checks) text(pointer, value string, least, most int) {
	switch n := utf8.RuneCountInString(value); {
	case n < least || n > most:
		c.fail(pointer, "must have %d to %d characters", least, most)
	case strings.ContainsRune(value, 0):
		c.fail(pointer, "must not contain the character U+0000")
	}
}

func (c *checks) between(pointer string, value, least, most int64) {
	if value < least || value > most {
		c.fail(pointer, "must be between %d and %d", least, most)
	}
}

// err returns nil as an interface: a nil *problem in an error would not be equal to nil.
func (c checks) err() error {
	if len(c) == 0 {
		return nil
	}
	return invalidBody(c)
}

// pointer joins the parts of an RFC 6901 pointer. It escapes them, because the names in
// metadata are the client's and may contain a slash.
func pointer(parts ...any) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteByte('/')
		if name, ok := p.(string); ok {
			b.WriteString(escapes.Replace(name))
		} else {
			fmt.Fprint(&b, p)
		}
	}
	return b.String()
}

// escapes is shared, because each one that is made is compiled again.
var escapes = strings.NewReplacer("~", "~0", "/", "~1")
