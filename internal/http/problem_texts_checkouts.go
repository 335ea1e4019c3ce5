package http

// checkoutTexts are the texts of checkoutProblems.
var checkoutTexts = map[string]problemText{
	codeOutOfStock: {
		What: "The checkout could not reserve every item. The card was not charged, the items that had been " +
			"reserved were released, as was the money if it was reserved first, and the order was canceled. The member checkout shows each step.",
		Retry: "Not with this key: it returns this response every time. Order a smaller quantity, or wait until " +
			"there is more stock, and send a new checkout with a new key.",
	},
}
