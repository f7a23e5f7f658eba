"""The HTTP rim: AdmissionReview in, AdmissionReview out."""
